"""The dispatcher on the ledger: loads what the pure rules need, performs their grants, under one lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy import select

from airflow_relay.core import dispatch as rules
from airflow_relay.core.capacity import free_units
from airflow_relay.core.item import Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Candidate, Conditions, Grant, Group, Snapshot
from airflow_relay.core.states import (
    AIRFLOW_RUNS_KEY,
    DEFAULT_AIRFLOW_RUNS,
)
from airflow_relay.core.windows import closed_until
from airflow_relay.ledger import breakers, governing, items, ready, runs
from airflow_relay.ledger import standing as standings
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import DISPATCHER_LOCK, meta


def lock(tx: Tx, *, with_next: bool = False) -> None:
    """Become the only dispatcher until the transaction ends (SQLite: an immediate transaction is one).

    :param with_next: by the next statement, which then saves a round trip; the caller executes one at once.
    """
    if tx.is_sqlite:
        return
    if with_next:
        tx.write(_LOCK)
    else:
        tx.conn.execute(_LOCK)


_LOCK: Final = select(meta.c.name).where(meta.c.name == DISPATCHER_LOCK).with_for_update()


def run_dispatch(tx: Tx, conditions: Conditions, now: datetime) -> list[Run]:
    """Decide and grant. The caller holds the lock and has freed and changed what it came for."""
    governing.tell_over_budget(tx, conditions.over_budget, now)
    return _perform(tx, _decide(tx, _bare_snapshot(tx, conditions, now, exact=False), now), now)


def _perform(tx: Tx, grants: Sequence[Grant], now: datetime) -> list[Run]:
    if not grants:
        return []
    found = items.locked_all(tx, [chosen.item_id for chosen in grants])
    granted = runs.grant(tx, [found[chosen.item_id] for chosen in grants], now=now)
    for chosen, run in zip(grants, granted, strict=True):
        if chosen.probe:
            breakers.probe_granted(tx, run, now)
    return granted


def _decide(tx: Tx, bare: Snapshot, now: datetime) -> Sequence[Grant]:
    """The grants that all candidates would give, from as few of them as settle it.

    The rules stop when the runs are used up. So groups of which no item can come before the last grant are
    not even asked for: a busy system, in which each hand-off frees one run, loads one item, not one of each
    stage.
    """
    free = _free_runs(bare)
    levels = _levels(bare, now)
    loaded: list[Candidate] = []
    grants: Sequence[Grant] = ()
    for place, (_, members) in enumerate(levels, start=1):
        loaded += [c for group, count in members for c in ready.candidates(tx, group, count, now)]
        following = levels[place][0] if place < len(levels) else None
        if following is not None and len(loaded) < free:
            continue
        grants = rules.grants(bare.with_candidates(loaded), now)
        if following is None or (len(grants) == free and _last(grants, loaded, now) < following):
            break
    return grants


Start = tuple[int, int]
"""The start of an order key: class and effective rank."""


def _levels(bare: Snapshot, now: datetime) -> list[tuple[Start, list[tuple[Group, int]]]]:
    """Groups and how many of their items count, by the smallest start that an item of theirs can have."""
    found: dict[Start, list[tuple[Group, int]]] = {}
    for group in bare.groups:
        count = rules.wanted(group, bare, now)
        if count:
            start = (rules.CLASS_ORDER[group.klass], -(group.rank + rules.age(group.oldest, now)))
            found.setdefault(start, []).append((group, count))
    return sorted(found.items(), key=lambda level: level[0])


def _last(grants: Sequence[Grant], loaded: Sequence[Candidate], now: datetime) -> Start:
    """The start of the last grant's order key: no grant comes behind it."""
    granted = grants[-1].item_id
    return rules.order_key(next(c for c in loaded if c.item_id == granted), now)[:2]


def load_snapshot(tx: Tx, conditions: Conditions, now: datetime) -> Snapshot:
    """What the rules look at: all ready items by group, and of each group as many as could be granted."""
    bare = _bare_snapshot(tx, conditions, now)
    found = [c for g in bare.groups for c in ready.candidates(tx, g, rules.wanted(g, bare, now), now)]
    return bare.with_candidates(found)


def _bare_snapshot(tx: Tx, conditions: Conditions, now: datetime, *, exact: bool = True) -> Snapshot:
    """All of it but the candidates.

    :param exact: false counts the items of a group no further than one more than there are free runs.
    """
    standing = standings.load(tx)
    declared = standing.declared
    conditions = governing.with_adaptive_limits(conditions, standing.adaptive)
    conditions = governing.with_holds(tx, conditions, now)
    snapshot = Snapshot(
        usage=Counter(key for keys, _ in standing.held for key in keys),
        running=[keys for keys, _ in standing.held],
        limits=effective_limits(declared, conditions),
        conditions=conditions,
        breakers=breakers.gates_of(standing.breakers, now),
        active_classes=Counter(klass for _, klass in standing.held),
    )
    most = None if exact else _free_runs(snapshot) + 1
    groups = ready.groups(tx, now, most=most)
    return replace(snapshot, groups=groups, closed_until=_closed_stages(groups, declared, now))


def _free_runs(snapshot: Snapshot) -> int:
    return free_units(AIRFLOW_RUNS_KEY, snapshot) or 0


def effective_limits(declared: Mapping[str, Pipeline], conditions: Conditions) -> dict[str, int]:
    """Declared limits under those that the Variable ``relay_limits`` sets."""
    limits = {AIRFLOW_RUNS_KEY: DEFAULT_AIRFLOW_RUNS}
    for pipeline in declared.values():
        for key, limit in pipeline.declared_limits().items():
            limits[key] = min(limit, limits.get(key, limit))  # a shared key keeps the lowest that is declared
    return {**limits, **conditions.limits}


def _closed_stages(
    groups: Sequence[Group], declared: Mapping[str, Pipeline], now: datetime
) -> dict[tuple[str, str], datetime | None]:
    closed: dict[tuple[str, str], datetime | None] = {}
    for group in groups:
        pipeline = declared.get(group.pipeline)
        if pipeline is None or not pipeline.has_stage(group.stage):
            continue
        until = closed_until(pipeline.stage(group.stage).window, pipeline.timezone, now)
        if until is not None:
            closed[(group.pipeline, group.stage)] = until
    return closed

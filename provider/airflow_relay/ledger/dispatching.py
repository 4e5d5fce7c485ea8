"""The dispatcher on the ledger: loads what the pure rules need, performs their grants, under one lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, func, literal, or_, select, type_coerce

from airflow_relay.core import dispatch as rules
from airflow_relay.core.item import Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Candidate, Conditions, Group, Plan, Snapshot
from airflow_relay.core.states import (
    AIRFLOW_RUNS_KEY,
    DEFAULT_AIRFLOW_RUNS,
    ItemState,
    PriorityClass,
    RunState,
)
from airflow_relay.core.windows import closed_until
from airflow_relay.ledger import breakers, declarations, governing, items, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import DISPATCHER_LOCK, meta
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import runs as run_table
from airflow_relay.ledger.types import to_micros

_BAND: Final = timedelta(hours=2) // timedelta(microseconds=1)


def lock(tx: Tx) -> None:
    """Become the only dispatcher until the transaction ends (SQLite: an immediate transaction is one)."""
    if not tx.is_sqlite:
        tx.conn.execute(select(meta.c.name).where(meta.c.name == DISPATCHER_LOCK).with_for_update())


def run_dispatch(tx: Tx, conditions: Conditions, now: datetime) -> list[Run]:
    """Decide and grant. The caller holds the lock and has freed and changed what it came for."""
    governing.tell_over_budget(tx, conditions.over_budget, now)
    snapshot = load_snapshot(tx, conditions, now)
    if not snapshot.candidates:
        return []
    plan = rules.dispatch(snapshot, now)
    return _perform(tx, plan, now)


def _perform(tx: Tx, plan: Plan, now: datetime) -> list[Run]:
    granted = []
    for chosen in plan.grants:
        item = items.locked(tx, chosen.item_id)
        _, run = runs.grant(tx, item, now=now)
        if chosen.probe:
            breakers.probe_granted(tx, run, now)
        granted.append(run)
    return granted


def load_snapshot(tx: Tx, conditions: Conditions, now: datetime) -> Snapshot:
    """What the rules look at: all ready items by group, and of each group as many as could be granted."""
    conditions = governing.with_adaptive_limits(tx, conditions)
    groups = _groups(tx, now)
    declared = declarations.load_all(tx) if groups else {}
    held = runs.held_keys(tx)
    bare = Snapshot(
        groups=groups,
        usage=Counter(key for keys in held for key in keys),
        running=held,
        limits=effective_limits(declared, conditions),
        conditions=conditions,
        breakers=breakers.gates(tx, now),
        active_classes=_active_classes(tx),
        closed_until=_closed_stages(groups, declared, now),
    )
    candidates = [c for g in groups for c in _candidates(tx, g, rules.wanted(g, bare, now), now)]
    return bare.with_candidates(candidates)


def effective_limits(declared: dict[str, Pipeline], conditions: Conditions) -> dict[str, int]:
    """Declared limits under those that the Variable ``relay_limits`` sets."""
    limits = {AIRFLOW_RUNS_KEY: DEFAULT_AIRFLOW_RUNS}
    for pipeline in declared.values():
        for key, limit in pipeline.declared_limits().items():
            limits[key] = min(limit, limits.get(key, limit))  # a shared key keeps the lowest that is declared
    return {**limits, **conditions.limits}


def _groups(tx: Tx, now: datetime) -> list[Group]:
    t = item_table.c
    columns = (t.pipeline, t.stage, t.dag_id, t.klass, t.rank, t["keys"])
    query = (
        select(*columns, func.count().label("number"), func.min(t.ready_since).label("oldest"))
        .where(t.state == ItemState.READY, or_(t.not_before.is_(None), t.not_before <= now))
        .group_by(*columns)
        .order_by(t.pipeline, t.stage)
    )
    return [
        Group(
            pipeline=r.pipeline,
            stage=r.stage,
            dag_id=r.dag_id,
            klass=r.klass,
            rank=r.rank,
            keys=tuple(r._mapping["keys"]),  # noqa: SLF001 - SQLAlchemy's public accessor; r.keys is its method
            count=r.number,
            oldest=r.oldest,
        )
        for r in tx.conn.execute(query)
    ]


def _candidates(tx: Tx, group: Group, wanted: int, now: datetime) -> Sequence[Candidate]:
    """The first ``wanted`` of a group in the order of the rules: aged band, own priority, age."""
    if wanted <= 0:
        return ()
    t = item_table.c
    waited = literal(to_micros(now), BigInteger) - type_coerce(t.ready_since, BigInteger)
    band = waited // literal(_BAND, BigInteger)
    query = (
        select(t.id, t.priority, t.ready_since, t.not_before)
        .where(
            t.state == ItemState.READY,
            t.pipeline == group.pipeline,
            t.stage == group.stage,
            t.dag_id == group.dag_id,
            t.klass == group.klass,
            t.rank == group.rank,
            t["keys"] == list(group.keys),
            or_(t.not_before.is_(None), t.not_before <= now),
        )
        .order_by(band.desc(), t.priority.desc(), t.ready_since, t.id)
        .limit(wanted)
    )
    return [
        Candidate(
            item_id=r.id,
            pipeline=group.pipeline,
            stage=group.stage,
            dag_id=group.dag_id,
            klass=group.klass,
            rank=group.rank,
            priority=r.priority,
            keys=group.keys,
            ready_since=r.ready_since,
            not_before=r.not_before,
        )
        for r in tx.conn.execute(query)
    ]


def _active_classes(tx: Tx) -> dict[PriorityClass, int]:
    query = (
        select(run_table.c.klass, func.count())
        .where(run_table.c.state == RunState.OPEN)
        .group_by(run_table.c.klass)
    )
    return {klass: count for klass, count in tx.conn.execute(query)}  # noqa: C416 - rows are Row objects


def _closed_stages(
    groups: Sequence[Group], declared: dict[str, Pipeline], now: datetime
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


def ready_dags(tx: Tx) -> set[str]:
    """DAGs that have ready items: those whose pause state matters to the next decision."""
    query = select(item_table.c.dag_id).where(item_table.c.state == ItemState.READY).distinct()
    return set(tx.conn.execute(query).scalars())

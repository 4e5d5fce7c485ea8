"""The recovery sweep on the ledger: stale items by index, a plan by the rules, each decision performed once.

Its cost grows with the stale items, not with the ledger: only states that somebody has to move are looked at,
through the index on state and last activity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Select, bindparam, exists, func, select

from airflow_relay.core import lifecycle, recovery
from airflow_relay.core.finding import ACTING, Decision, Finding, RecoveryAction, RunLiveness
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.obstacles import stages_of, with_obstacles
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.rules import RecoveryRules, RuleSet
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import IN_FLIGHT, EventKind, ItemState, RunState
from airflow_relay.core.windows import closed_until
from airflow_relay.ledger import alerts, codec, dead_letters, declarations, dispatching, items, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import alerts as alert_table
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import runs as run_table

SCAN_LIMIT: Final = 20_000
"""Stale items that one sweep looks at, the oldest ones; it bounds the sweep's memory after a long outage."""

ACTS_LIMIT: Final = 200
"""Dead letters, and late alerts, of one sweep: what it hands on stays small, and people can read it."""

_MOVED_BY_SWEEP: Final = frozenset({ItemState.FAILED, *IN_FLIGHT})
_ANY_AGE: Final = timedelta(0)


@dataclass(frozen=True)
class Stale:
    """How many items have had no activity for their pipeline's time.

    :param ready: wait for the dispatcher, and are left to it.
    """

    failed: int
    in_flight: int
    ready: int


@dataclass(frozen=True)
class Heard:
    """What Airflow said of the run of an item in this sweep.

    :param since: the item's last activity before its run was recorded as ended; ``None`` when it was not.
    """

    liveness: RunLiveness
    since: datetime | None = None


@dataclass(frozen=True)
class Plan:
    """What a sweep is going to do, in order, and how much it saw.

    :param acting: the decisions that do something, within the caps.
    :param counts: action → items, of everything that was looked at.
    :param examples: action → a few keys.
    :param stranded: stale items of a stage that is no longer declared (``airflow relay move``).
    """

    acting: tuple[Decision, ...]
    counts: Mapping[RecoveryAction, int]
    examples: Mapping[RecoveryAction, tuple[str, ...]]
    stranded: int


@dataclass(frozen=True)
class Scope:
    """One stage alone, for its fallback DAG."""

    pipeline: str
    stage: str


def count_stale(tx: Tx, rules: RuleSet, now: datetime) -> Stale:
    """Count by state, by index."""
    query = (
        select(item_table.c.state, func.count())
        .where(
            item_table.c.state.in_([*_MOVED_BY_SWEEP, ItemState.READY]),
            item_table.c.last_activity_at <= now - _shortest(rules),
        )
        .group_by(item_table.c.state)
    )
    counted: dict[ItemState, int] = {state: count for state, count in tx.conn.execute(query)}  # noqa: C416
    return Stale(
        failed=counted.get(ItemState.FAILED, 0),
        in_flight=sum(counted.get(state, 0) for state in IN_FLIGHT),
        ready=counted.get(ItemState.READY, 0),
    )


def stale_dags(tx: Tx, rules: RuleSet, now: datetime) -> set[str]:
    """DAGs that a refire would go to: those whose pause state matters to the plan."""
    query = select(item_table.c.dag_id).where(*_is_stale(rules, now, [ItemState.FAILED])).distinct()
    return set(tx.conn.execute(query).scalars())


def _shortest(rules: RuleSet) -> timedelta:
    return min([rules.default.stale, *(r.stale for r in rules.pipelines.values())])


def _is_stale(rules: RuleSet, now: datetime, states: Collection[ItemState]) -> tuple[Any, ...]:
    """By the shortest time of any pipeline; the rules look again with the item's own."""
    t = item_table.c
    return t.state.in_(sorted(states)), t.last_activity_at <= now - _shortest(rules)


def plan(
    tx: Tx,
    *,
    rules: RuleSet,
    conditions: Conditions,
    heard: Mapping[int, Heard],
    now: datetime,
    scope: Scope | None = None,
) -> Plan:
    """Decide about all stale items, highest stage and oldest activity first. Nothing is written."""
    declared = declarations.load_all(tx)
    found = _with_recorded(tx, _stale_items(tx, rules, now, scope), heard)
    known = [i for i in found if i.pipeline in declared and declared[i.pipeline].has_stage(i.stage)]
    findings = _findings(tx, known, declared, heard)
    findings = _with_obstacles(tx, findings, declared, rules=rules, conditions=conditions, now=now)
    return _within_limits(recovery.plan_sweep(findings, now=now, rules=rules), len(found) - len(known))


def _stale_items(tx: Tx, rules: RuleSet, now: datetime, scope: Scope | None) -> list[Item]:
    query: Select[Any] = (
        select(item_table)
        .where(*_is_stale(rules, now, _MOVED_BY_SWEEP))
        .order_by(item_table.c.last_activity_at)
        .limit(SCAN_LIMIT)
    )
    if scope is not None:
        query = query.where(item_table.c.pipeline == scope.pipeline, item_table.c.stage == scope.stage)
    return [codec.item_from(r) for r in tx.conn.execute(query)]


def _with_recorded(tx: Tx, found: list[Item], heard: Mapping[int, Heard]) -> list[Item]:
    """Items whose run this very sweep recorded as ended: as old as they were before that."""
    since = {item: h.since for item, h in heard.items() if h.since is not None}
    missing = set(since) - {i.id for i in found}
    return [*found, *(replace(i, last_activity_at=since[i.id]) for i in items.by_ids(tx, missing))]


def _findings(
    tx: Tx, known: Sequence[Item], declared: Mapping[str, Pipeline], heard: Mapping[int, Heard]
) -> list[Finding]:
    open_runs = _open_runs(tx) if any(i.state in IN_FLIGHT for i in known) else {}
    late = _late_alerted(tx, [late_key(run) for run in open_runs.values()])
    findings = []
    for item in known:
        run = open_runs.get(item.id)
        findings.append(
            Finding(
                item=item,
                liveness=_liveness(item, run, heard),
                run=run,
                timezone=declared[item.pipeline].timezone,
                late_alerted=run is not None and late_key(run) in late,
            )
        )
    return findings


def _liveness(item: Item, run: Run | None, heard: Mapping[int, Heard]) -> RunLiveness:
    if run is None:
        return RunLiveness.NO_RUN
    return heard[item.id].liveness if item.id in heard else RunLiveness.NOT_ASKED


def _open_runs(tx: Tx) -> dict[int, Run]:
    """Item id → its open run; of several, the newest."""
    query = select(run_table).where(run_table.c.state == RunState.OPEN).order_by(run_table.c.epoch)
    return {run.item_id: run for run in (codec.run_from(r) for r in tx.conn.execute(query))}


def _late_alerted(tx: Tx, keys: Sequence[str]) -> frozenset[str]:
    raised: set[str] = set()
    for start in range(0, len(keys), 500):
        query = select(alert_table.c.dedup_key).where(alert_table.c.dedup_key.in_(keys[start : start + 500]))
        raised.update(tx.conn.execute(query).scalars())
    return frozenset(raised)


def _with_obstacles(
    tx: Tx,
    findings: list[Finding],
    declared: Mapping[str, Pipeline],
    *,
    rules: RuleSet,
    conditions: Conditions,
    now: datetime,
) -> list[Finding]:
    """Give out the free slots in the order of the sweep; whoever finds none has an obstacle."""
    snapshot = dispatching.load_snapshot(tx, conditions, now)
    limits = dispatching.effective_limits(dict(declared), conditions)
    windows = {
        (p, s): closed_until(declared[p].stage(s).window, declared[p].timezone, now)
        for p, s in stages_of(f.item for f in findings)
    }
    snapshot = replace(snapshot, limits=limits, closed_until={**snapshot.closed_until, **windows})
    return with_obstacles(findings, snapshot=snapshot, rules=rules, now=now)


def _within_limits(decisions: Sequence[Decision], stranded: int) -> Plan:
    acting: list[Decision] = []
    kept: Counter[RecoveryAction] = Counter()
    counts: Counter[RecoveryAction] = Counter()
    examples: dict[RecoveryAction, tuple[str, ...]] = {}
    for decision in decisions:
        action = decision.action
        if action in ACTING and action is not RecoveryAction.REFIRE and kept[action] >= ACTS_LIMIT:
            action = RecoveryAction.OVER_SWEEP_CAP
        counts[action] += 1
        if len(examples.setdefault(action, ())) < _EXAMPLES:
            examples[action] += (f"{decision.pipeline}/{decision.key}: {decision.reason}",)
        if action in ACTING:
            kept[action] += 1
            acting.append(decision)
    return Plan(tuple(acting), counts, examples, stranded)


_EXAMPLES: Final = 3


def refire(tx: Tx, decision: Decision, *, rules: RecoveryRules, now: datetime, order: int = 0) -> Item | None:
    """Make the item ready for its stage again; ``None`` when it has moved meanwhile. Its grant is charged.

    The rules are asked once more on the locked row, so that two sweeps, a sweep and a person, or an old
    decision performed again charge once and start one run. The caller holds the dispatcher's lock.

    :param order: place in the sweep; the dispatcher keeps it among items of one stage.
    """
    item, pipeline = _still(tx, decision, RecoveryAction.REFIRE, rules=rules, now=now)
    if item is None or pipeline is None:
        return None
    change = lifecycle.recovered(
        item, pipeline=pipeline, text=f"Recovery: {decision.reason}", now=now, order=order
    )
    return items.perform(tx, item, change)


def dead_letter(tx: Tx, decision: Decision, *, rules: RecoveryRules, now: datetime) -> Item | None:
    """Give the item up, with its letter and its one alert; ``None`` when it has moved meanwhile."""
    item, _ = _still(tx, decision, RecoveryAction.DEAD_LETTER, rules=rules, now=now)
    if item is None:
        return None
    change = Change(
        kind=EventKind.DEAD_LETTERED,
        at=now,
        text=f"Recovery gives up: {decision.reason}",
        set={"state": ItemState.DEAD, "finished_at": now, "ready_since": None},
    )
    after = items.perform(tx, item, change)
    dead_letters.enter(tx, after, decision.reason, now)
    return after


def _still(
    tx: Tx, decision: Decision, action: RecoveryAction, *, rules: RecoveryRules, now: datetime
) -> tuple[Item | None, Pipeline | None]:
    """The locked item, if what was decided about it still holds."""
    item, has_open_run = _locked(tx, decision.item_id)
    if item.epoch != decision.epoch or item.state not in _MOVED_BY_SWEEP or has_open_run:
        return None, None
    pipeline = declarations.load(tx, item.pipeline)
    finding = Finding(item=item, liveness=RunLiveness.NO_RUN, timezone=pipeline.timezone)
    # How long it has been idle was asked before; recording the end of its run was an activity since then.
    again = recovery.decide(finding, now=now, rules=replace(rules, stale=_ANY_AGE))
    return (item, pipeline) if again.action is action else (None, None)


def _locked(tx: Tx, item_id: int) -> tuple[Item, bool]:
    """The locked item, and whether it holds an open run, which none but a dispatcher could open meanwhile."""
    row = tx.conn.execute(_LOCK, {"of_item": item_id}).one()
    return codec.item_from(row), bool(row.has_open_run)


_LOCK: Final = (
    select(
        item_table,
        exists()
        .where(run_table.c.item_id == item_table.c.id, run_table.c.state == RunState.OPEN)
        .label("has_open_run"),
    )
    .where(item_table.c.id == bindparam("of_item"))
    .with_for_update(of=item_table)
)


def late_key(run: Run) -> str:
    """The alert of a run that takes longer than its stage is expected to: one for each start of it."""
    return f"late:{run.id}:{run.clear_number}"


def alert_late(tx: Tx, decision: Decision, *, now: datetime) -> bool:
    """Tell people of a run that is alive, later than expected. Returns whether the alert is new."""
    run = runs.newest(tx, decision.item_id)
    if run is None or run.state is not RunState.OPEN:
        return False
    text = f"Item '{decision.key}' of {decision.pipeline}: {decision.reason} It is left alone ({run.run_id})."
    return alerts.raise_alert(tx, late_key(run), text, now)

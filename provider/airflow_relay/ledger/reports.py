"""Read-only views of the ledger for people: what waits and why, what is in use, how it has gone lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, func, select

from airflow_relay.core import dispatch as rules
from airflow_relay.core.item import Item
from airflow_relay.core.snapshot import Candidate, Conditions, Plan, Snapshot
from airflow_relay.core.states import ItemState, RunResult, RunState, WaitReason
from airflow_relay.ledger import codec, declarations, dispatching
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import dead_letters, heartbeats, holds, intakes, runs
from airflow_relay.ledger.schema import items as item_table

_BATCH: Final = 500

Place = tuple[str, str]
"""(pipeline, stage)"""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where an item stands.

    :param since: when it came into its state.
    :param reason: of a ready item, why it has no grant yet.
    :param text: what it waits for, in words; empty when it waits for nothing but its own work.
    """

    since: datetime
    reason: WaitReason | None
    text: str


class WaitingRoom:
    """The dispatcher's view of everything that is ready: one decision, made and thrown away."""

    def __init__(self, snapshot: Snapshot, plan: Plan, now: datetime) -> None:
        self.snapshot = snapshot
        self._plan = plan
        self._now = now

    @classmethod
    def look(cls, tx: Tx, conditions: Conditions, now: datetime) -> WaitingRoom:
        """Decide as the dispatcher would, and perform nothing."""
        snapshot = dispatching.load_snapshot(tx, conditions, now)
        return cls(snapshot, rules.dispatch(snapshot, now), now)

    def reason(self, item: Item) -> tuple[WaitReason, str]:
        """Why a ready item waits, also in words."""
        reason = self._plan.reason(_candidate(item), self._now)
        if reason is WaitReason.NOT_BEFORE and item.not_before is not None and item.not_before > self._now:
            return reason, f"not before {item.not_before.isoformat(timespec='seconds')}"
        if reason is WaitReason.NEXT:
            return reason, "nothing stands in its way: the next dispatch grants it"
        return reason, self._plan.why.get((item.pipeline, item.stage), reason.value)

    def by_stage(self) -> dict[Place, str]:
        """Stages with ready items left over → why the first of them waits."""
        return dict(self._plan.why)


def _candidate(item: Item) -> Candidate:
    return Candidate(
        item_id=item.id,
        pipeline=item.pipeline,
        stage=item.stage,
        dag_id=item.dag_id,
        klass=item.klass,
        rank=item.rank,
        priority=item.priority,
        keys=item.keys,
        ready_since=item.ready_since or item.last_activity_at,
        not_before=item.not_before,
    )


def standings(tx: Tx, found: Sequence[Item], conditions: Conditions, now: datetime) -> dict[int, Standing]:
    """Item id → where it stands."""
    any_ready = any(item.state is ItemState.READY for item in found)
    room = WaitingRoom.look(tx, conditions, now) if any_ready else None
    current = _current_runs(tx, [item.id for item in found])
    letters = _letters(tx, [item.id for item in found if item.state is ItemState.DEAD])
    return {
        item.id: Standing(
            since=_since(item, current.get(item.id), letters.get(item.id)),
            reason=room.reason(item)[0] if room and item.state is ItemState.READY else None,
            text=_waits_for(item, room, current.get(item.id)),
        )
        for item in found
    }


def _since(item: Item, run: Mapping[str, Any] | None, letter: datetime | None) -> datetime:
    times = {
        ItemState.READY: item.ready_since,
        ItemState.GRANTED: run and run["granted_at"],
        ItemState.RUNNING: run and run["started_at"],
        ItemState.FAILED: run and run["closed_at"],
        ItemState.DEAD: letter,
    }
    return times.get(item.state, item.finished_at) or item.last_activity_at


def _waits_for(item: Item, room: WaitingRoom | None, run: Mapping[str, Any] | None) -> str:
    if item.state is ItemState.READY and room is not None:
        return room.reason(item)[1]
    if item.state is ItemState.GRANTED:
        confirmed = run is not None and run["confirmed_at"] is not None
        return "Airflow has its run, no task has begun" if confirmed else "its run is being requested"
    error = f"{item.error_class or 'failed'}: {item.error_reason or 'no reason recorded'}"
    if item.state is ItemState.FAILED:
        return f"the recovery sweep takes it up ({error})"
    if item.state is ItemState.DEAD:
        return f"a person decides ({error})"
    return ""


def _current_runs(tx: Tx, ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Item id → times of the run that holds the item's present grant."""
    found: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(ids), _BATCH):
        query = (
            select(
                runs.c.item_id, runs.c.granted_at, runs.c.confirmed_at, runs.c.started_at, runs.c.closed_at
            )
            .join(item_table, and_(item_table.c.id == runs.c.item_id, item_table.c.epoch == runs.c.epoch))
            .where(runs.c.item_id.in_(ids[start : start + _BATCH]))
        )
        found.update({r["item_id"]: r for r in tx.conn.execute(query).mappings()})
    return found


def _letters(tx: Tx, ids: Sequence[int]) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    for start in range(0, len(ids), _BATCH):
        query = select(dead_letters.c.item_id, dead_letters.c.at).where(
            dead_letters.c.item_id.in_(ids[start : start + _BATCH]), dead_letters.c.resolved_at.is_(None)
        )
        found.update({item_id: at for item_id, at in tx.conn.execute(query)})  # noqa: C416 - Row objects
    return found


def ready_since_before(tx: Tx, moment: datetime, limit: int = 1000) -> list[Item]:
    """Items that are ready and have waited since before then, the oldest first."""
    query = (
        select(item_table)
        .where(item_table.c.state == ItemState.READY, item_table.c.ready_since < moment)
        .order_by(item_table.c.ready_since)
        .limit(limit)
    )
    return [codec.item_from(row) for row in tx.conn.execute(query)]


def population(tx: Tx) -> dict[Place, Counter[ItemState]]:
    """(pipeline, stage) → state → items, of the items that are not finished."""
    t = item_table.c
    query = (
        select(t.pipeline, t.stage, t.state, func.count())
        .where(t.state.not_in([ItemState.DONE, ItemState.DISCARDED]))
        .group_by(t.pipeline, t.stage, t.state)
        .order_by(t.pipeline, t.stage)
    )
    found: dict[Place, Counter[ItemState]] = {}
    for pipeline, stage, state, count in tx.conn.execute(query):
        found.setdefault((pipeline, stage), Counter())[state] = count
    return found


def finished(tx: Tx, since: datetime) -> dict[str, Counter[ItemState]]:
    """Pipeline → final state → items that reached it at or after ``since``."""
    t = item_table.c
    query = (
        select(t.pipeline, t.state, func.count())
        .where(t.state.in_([ItemState.DONE, ItemState.DISCARDED]), t.finished_at >= since)
        .group_by(t.pipeline, t.state)
    )
    found: dict[str, Counter[ItemState]] = {}
    for pipeline, state, count in tx.conn.execute(query):
        found.setdefault(pipeline, Counter())[state] = count
    return found


@dataclass(frozen=True, kw_only=True)
class KeyUse:
    """A capacity key: units held, and its limit (``None`` for no limit)."""

    key: str
    used: int
    limit: int | None


def key_use(snapshot: Snapshot) -> list[KeyUse]:
    """Every key that is limited or in use."""
    keys = sorted({*snapshot.usage, *snapshot.limits})
    return [KeyUse(key=k, used=snapshot.usage.get(k, 0), limit=snapshot.limits.get(k)) for k in keys]


def snapshot(tx: Tx, conditions: Conditions, now: datetime) -> Snapshot:
    """What the dispatcher sees, limits included also when nothing is ready."""
    found = dispatching.load_snapshot(tx, conditions, now)
    if found.groups:
        return found
    limits = dispatching.effective_limits(declarations.load_all(tx), conditions)
    return Snapshot(usage=found.usage, limits=limits, conditions=conditions, breakers=found.breakers)


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """How the runs of a stage have gone lately.

    :param granted: grants given in the period.
    :param never_started: of these, closed without any task having begun (lost, withdrawn).
    :param succeeded: runs closed as a success, skipped ones included, in the period.
    :param failed: runs closed as failed or lost in the period.
    :param mean_phase_s: mean seconds from the first task to the hand-off, of successes; ``None`` without any.
    :param mean_latency_s: mean seconds from grant to the first task.
    :param mean_wait_s: mean seconds that items waited for their grant.
    """

    granted: int
    never_started: int
    succeeded: int
    failed: int
    mean_phase_s: float | None
    mean_latency_s: float | None
    mean_wait_s: float | None

    @property
    def dispatch_success(self) -> float | None:
        """Share of the grants that did not end before they began."""
        return None if not self.granted else 1 - self.never_started / self.granted


def stage_figures(tx: Tx, since: datetime) -> dict[Place, StageFigures]:
    """(pipeline, stage) → figures of the runs granted or closed at or after ``since``."""
    t = runs.c
    given = t.granted_at >= since
    closed = and_(t.state == RunState.CLOSED, t.closed_at >= since)
    worked = and_(closed, t.result == RunResult.SUCCESS)
    query = (
        select(
            t.pipeline,
            t.stage,
            _count(given),
            _count(and_(given, t.state == RunState.CLOSED, t.started_at.is_(None))),
            _count(and_(closed, t.result.in_([RunResult.SUCCESS, RunResult.SKIPPED]))),
            _count(and_(closed, t.result.in_([RunResult.FAILED, RunResult.LOST]))),
            _mean(worked, t.started_at, t.closed_at),
            _mean(given, t.granted_at, t.started_at),
            _mean(given, t.ready_since, t.granted_at),
        )
        .where(given | (t.closed_at >= since))
        .group_by(t.pipeline, t.stage)
        .order_by(t.pipeline, t.stage)
    )
    return {
        (pipeline, stage): StageFigures(
            granted=granted,
            never_started=never,
            succeeded=good,
            failed=bad,
            mean_phase_s=_seconds(phase),
            mean_latency_s=_seconds(latency),
            mean_wait_s=_seconds(wait),
        )
        for pipeline, stage, granted, never, good, bad, phase, latency, wait in tx.conn.execute(query)
    }


def _count(condition: ColumnElement[bool]) -> Any:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def _mean(condition: ColumnElement[bool], start: Any, end: Any) -> Any:
    from sqlalchemy import BigInteger, Float, cast, type_coerce  # noqa: PLC0415 - used here only

    span = type_coerce(end, BigInteger) - type_coerce(start, BigInteger)
    known = and_(condition, start.is_not(None), end.is_not(None))
    return func.avg(case((known, cast(span, Float)), else_=None))


def _seconds(micros: float | None) -> float | None:
    return None if micros is None else round(float(micros) / 1e6, 3)


@dataclass(frozen=True, kw_only=True)
class IntakeFigures:
    """The intakes of a pipeline in a period, and those of the period before: the trend.

    :param last_reason: why the latest skipped cycle did nothing.
    """

    cycles: int
    skipped: int
    skipped_before: int
    registered: int
    last_at: datetime | None
    last_reason: str | None

    @property
    def trend(self) -> str:
        """Of skipped cycles: ``rising``, ``falling`` or ``steady``."""
        if self.skipped == self.skipped_before:
            return "steady"
        return "rising" if self.skipped > self.skipped_before else "falling"


def intake_figures(tx: Tx, now: datetime, period: timedelta) -> dict[str, IntakeFigures]:
    """Pipeline → figures of the intakes within ``period`` before ``now``."""
    t = intakes.c
    recent, skipped = t.at >= now - period, t.skipped_because.is_not(None)
    query = (
        select(
            t.pipeline,
            _count(recent),
            _count(and_(recent, skipped)),
            _count(and_(~recent, skipped)),
            func.coalesce(func.sum(case((recent, t.registered), else_=0)), 0),
            func.max(t.at),
        )
        .where(t.at >= now - 2 * period)
        .group_by(t.pipeline)
        .order_by(t.pipeline)
    )
    reasons = _last_reasons(tx, now - period)
    return {
        pipeline: IntakeFigures(
            cycles=cycles,
            skipped=skips,
            skipped_before=before,
            registered=new,
            last_at=last,
            last_reason=reasons.get(pipeline),
        )
        for pipeline, cycles, skips, before, new, last in tx.conn.execute(query)
    }


def _last_reasons(tx: Tx, since: datetime) -> dict[str, str]:
    t = intakes.c
    newest = select(func.max(t.id)).where(t.at >= since, t.skipped_because.is_not(None)).group_by(t.pipeline)
    rows = tx.conn.execute(select(t.pipeline, t.skipped_because).where(t.id.in_(newest)))
    return {pipeline: reason for pipeline, reason in rows}  # noqa: C416 - rows are Row objects


def beats(tx: Tx) -> dict[str, datetime]:
    """Name → last heartbeat, of tick, sweep and whoever else writes one."""
    rows = tx.conn.execute(select(heartbeats.c.name, heartbeats.c.at).order_by(heartbeats.c.name))
    return {name: at for name, at in rows}  # noqa: C416 - rows are Row objects


def open_holds(tx: Tx, now: datetime) -> list[Mapping[str, Any]]:
    """Holds that a person set by command or form: ``scope, reason, until, set_at, set_by``."""
    query = select(holds).where(holds.c.until.is_(None) | (holds.c.until > now)).order_by(holds.c.scope)
    return [dict(row) for row in tx.conn.execute(query).mappings()]

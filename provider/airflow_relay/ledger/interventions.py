"""What people do to an item: redrive, rewind, skip a stage, discard, move. One way for CLI, form and page.

Each function locks the item, checks what it is, and does its work once: a second call finds it done. Callers
hold the dispatcher's lock, since runs are stopped and slots freed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func, select, update

from airflow_relay.core import lifecycle
from airflow_relay.core.item import Change, Item
from airflow_relay.core.pipeline import Pipeline, Target
from airflow_relay.core.recovery import fresh_budget
from airflow_relay.core.states import (
    FINISHED,
    IN_FLIGHT,
    EventKind,
    ItemState,
    RunResult,
    RunState,
)
from airflow_relay.ledger import breakers, codec, dead_letters, declarations, guarding, items, jobs, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import RefusedActionError
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import jobs as job_table
from airflow_relay.ledger.schema import runs as run_table

WAITS_FOR_HELP: Final = frozenset({ItemState.DEAD, ItemState.FAILED})
"""What a redrive takes up again: an item that a person, or the next sweep, would have to move."""


@dataclass(frozen=True)
class Intervened:
    """The item afterwards, whether anything was changed, and one sentence."""

    item: Item
    changed: bool
    text: str


def redrive(
    tx: Tx, item_id: int, *, by: str, now: datetime, stage: str | None = None, fresh: bool = False
) -> Intervened:
    """Let a dead or failed item run again with a fresh budget of recovery attempts; its history stays.

    A job that still runs for the item's stage is attached to again: what is paid for is kept.

    :param stage: another stage to begin at; ``None`` for the one that failed.
    :param fresh: drop the kept results of that stage's agent jobs, so that they are asked anew.
    :raises RefusedActionError: the item is finished.
    :raises PipelineError: the pipeline has no such stage (any more).
    """
    item = items.locked(tx, item_id)
    if item.state in FINISHED:
        raise RefusedActionError(
            f"Item '{item.key}' is {item.state.value}: a redrive is for items that wait for help. "
            f"To run it again: airflow relay rewind {item.key} <stage>"
        )
    if item.state not in WAITS_FOR_HELP:
        return Intervened(item, False, f"Item '{item.key}' is already {item.state.value} at {item.stage}.")
    target = stage or item.stage
    pipeline = _pipeline_with(tx, item, target)
    if target != item.stage:
        stop(tx, item, now=now)
    text = f"Redriven at {target} by {by}, with a fresh budget"
    after = _enter_again(tx, item, target, pipeline, kind=EventKind.REDRIVEN, text=text, now=now, fresh=fresh)
    dead_letters.resolve(tx, item.id, resolution="redriven", by=by, now=now)
    return Intervened(after, True, f"Item '{item.key}' is ready for {target} again.")


def rewind(tx: Tx, item_id: int, stage: str, *, by: str, now: datetime, fresh: bool = False) -> Intervened:
    """Send an item to a stage, from whatever state it is in. Its run is superseded, its open jobs are to be
    cancelled, and visits that this undoes no longer count against a bound.

    :raises PipelineError: the pipeline has no such stage.
    """
    item = items.locked(tx, item_id)
    if item.stage == stage and item.state in (ItemState.READY, ItemState.GRANTED):
        return Intervened(item, False, f"Item '{item.key}' is already {item.state.value} at {stage}.")
    pipeline = _pipeline_with(tx, item, stage)
    stopped = stop(tx, item, now=now)
    text = f"Rewound from {item.stage} ({item.state.value}) to {stage} by {by}{_stopped(stopped)}"
    after = _enter_again(tx, item, stage, pipeline, kind=EventKind.REWOUND, text=text, now=now, fresh=fresh)
    dead_letters.resolve(tx, item.id, resolution="rewound", by=by, now=now)
    return Intervened(after, True, f"Item '{item.key}' is ready for {stage}.")


def skip_stage(
    tx: Tx, item_id: int, *, by: str, now: datetime, outcome: str | None = None, stage: str | None = None
) -> Intervened:
    """Go on behind the item's stage as if it were done, by the route of ``outcome``.

    The status stays: the stage's work was not done.

    :param stage: the one that is meant: at another one the item is left alone, so that twice is once.
    :raises UnknownOutcomeError: the stage is a router without a default route; names its outcomes.
    :raises RefusedActionError: the item is finished.
    """
    item = items.locked(tx, item_id)
    if stage is not None and (item.stage != stage or item.state in FINISHED):
        return Intervened(item, False, f"Item '{item.key}' is {item.state.value} at {item.stage} by now.")
    if item.state in FINISHED:
        raise RefusedActionError(f"Item '{item.key}' is {item.state.value}: it has no stage to skip.")
    pipeline = declarations.load(tx, item.pipeline)
    target = _target(pipeline, item.stage, outcome)
    entered = lifecycle.enter(item, pipeline=pipeline, target=target, now=now)
    stopped = stop(tx, item, now=now)
    said = f" with outcome '{outcome}'" if outcome else ""
    change = Change(
        kind=EventKind.STAGE_SKIPPED,
        at=now,
        text=f"{item.stage} skipped{said} by {by}{_stopped(stopped)}. {entered.text}",
        set={"error_class": None, "error_reason": None, **fresh_budget(), **entered.set},
        detail={"stage": item.stage, "outcome": outcome},
    )
    dead_letters.resolve(tx, item.id, resolution="stage skipped", by=by, now=now)
    after = items.perform(tx, item, change)
    if after.state is ItemState.DEAD:
        dead_letters.enter(tx, after, change.text, now)
    return Intervened(after, True, f"Item '{item.key}': {item.stage} is skipped. {entered.text}.")


def _target(pipeline: Pipeline, stage: str, outcome: str | None) -> Target:
    try:
        return lifecycle.route(pipeline, stage, outcome)
    except lifecycle.UnknownOutcomeError:
        given = f"'{outcome}' is none of its outcomes" if outcome else "it takes an outcome to skip it"
        known = ", ".join(pipeline.stage(stage).routes)
        raise lifecycle.UnknownOutcomeError(
            f"{pipeline.name}.{stage} is a router, and {given}: name one of {known}."
        ) from None


def discard(tx: Tx, item_id: int, *, by: str, now: datetime, reason: str = "") -> Intervened:
    """End an item for good. Its run is superseded, its open jobs are to be cancelled.

    :raises RefusedActionError: the item is done: nothing is left to discard.
    """
    item = items.locked(tx, item_id)
    if item.state is ItemState.DISCARDED:
        return Intervened(item, False, f"Item '{item.key}' was discarded before.")
    if item.state is ItemState.DONE:
        raise RefusedActionError(f"Item '{item.key}' is done: nothing is left to discard.")
    stopped = stop(tx, item, now=now)
    change = Change(
        kind=EventKind.DISCARDED,
        at=now,
        text=f"Discarded at {item.stage} by {by}{f': {reason}' if reason else ''}{_stopped(stopped)}",
        set={
            "state": ItemState.DISCARDED,
            "finished_at": now,
            "ready_since": None,
            "not_before": None,
        },
    )
    after = items.perform(tx, item, change)
    dead_letters.resolve(tx, item.id, resolution="discarded", by=by, now=now)
    return Intervened(after, True, f"Item '{item.key}' is discarded.")


def move(tx: Tx, item_id: int, stage: str, *, by: str, now: datetime) -> Intervened:
    """Carry an item over to a stage of the present declaration, as after a stage was renamed or removed.

    A dead item stays dead, at its new stage; every other one is ready there.

    :raises PipelineError: the pipeline has no such stage.
    """
    item = items.locked(tx, item_id)
    if item.stage == stage or item.state in FINISHED:
        return Intervened(
            item, False, f"Item '{item.key}' is {item.state.value} at {item.stage}: left alone."
        )
    pipeline = _pipeline_with(tx, item, stage)
    text = f"Moved from {item.stage} to {stage} by {by}"
    if item.state is ItemState.DEAD:
        place = lifecycle.ready_again(
            replace(item, stage=stage), pipeline=pipeline, kind=EventKind.MOVED, text=text, now=now
        ).set
        kept = {name: place[name] for name in ("stage", "rank", "keys", "dag_id", "klass")}
        after = items.perform(tx, item, Change(kind=EventKind.MOVED, at=now, text=text, set=kept))
        dead_letters.relocate(tx, item.id, stage)
        return Intervened(after, True, f"Item '{item.key}' waits in the dead letters, now at {stage}.")
    text += _stopped(stop(tx, item, now=now))
    after = _enter_again(tx, item, stage, pipeline, kind=EventKind.MOVED, text=text, now=now)
    return Intervened(after, True, f"Item '{item.key}' is ready for {stage}.")


def stop(tx: Tx, item: Item, *, now: datetime) -> list[str]:
    """Take the right to move the item from its open runs, free their slots, ask for the end of its open jobs.

    The runs themselves go on in Airflow until their next guarded task, which is skipped. Returns their ids.
    """
    query = select(run_table).where(run_table.c.item_id == item.id, run_table.c.state == RunState.OPEN)
    stopped = [codec.run_from(r) for r in tx.conn.execute(query)]
    for run in stopped:
        runs.change(tx, run.id, state=RunState.SUPERSEDED, closed_at=now)
        runs.free_slots(tx, run.id)
        data = breakers.data_of(tx, run.pipeline, run.stage)
        breakers.run_ended(tx, run, data, result=RunResult.WITHDRAWN, error_class=None, now=now)
    tx.conn.execute(
        update(job_table)
        .where(
            job_table.c.item_id == item.id,
            job_table.c.phase.in_([phase.value for phase in jobs.OPEN]),
            job_table.c.cancel_requested_at.is_(None),
        )
        .values(cancel_requested_at=now)
    )
    return [run.run_id for run in stopped]


def _stopped(run_ids: list[str]) -> str:
    return f"; superseded: {', '.join(run_ids)}" if run_ids else ""


def _pipeline_with(tx: Tx, item: Item, stage: str) -> Pipeline:
    """The item's pipeline; refuses an unknown stage before anything is changed."""
    pipeline = declarations.load(tx, item.pipeline)
    pipeline.stage(stage)
    return pipeline


def _enter_again(
    tx: Tx,
    item: Item,
    stage: str,
    pipeline: Pipeline,
    *,
    kind: EventKind,
    text: str,
    now: datetime,
    fresh: bool = False,
) -> Item:
    """Ready for the stage: the visit that the item has made there before, or its first one."""
    if fresh:
        jobs.drop_kept(tx, item.id, now=now, stage=stage)
    extra: Mapping[str, Any] = {"error_class": None, "error_reason": None, **fresh_budget()}
    if stage != item.stage or item.state not in WAITS_FOR_HELP | IN_FLIGHT:
        extra = {**extra, "visits": _visits_at(tx, item, stage)}
    change = lifecycle.ready_again(
        replace(item, stage=stage), pipeline=pipeline, kind=kind, text=text, now=now, **extra
    )
    return items.perform(tx, item, change)


def _visits_at(tx: Tx, item: Item, stage: str) -> dict[str, int]:
    """Visits as they were when the item was last granted the stage; else with this as the first one."""
    query = (
        select(func.max(run_table.c.id))
        .where(run_table.c.item_id == item.id, run_table.c.stage == stage)
        .scalar_subquery()
    )
    row = tx.conn.execute(select(run_table).where(run_table.c.id == query)).one_or_none()
    if row is None:
        return {**item.visits, stage: max(1, item.visits.get(stage, 0))}
    return guarding.visits_until(tx, codec.run_from(row))


def stranded(tx: Tx) -> Mapping[tuple[str, str], int]:
    """(pipeline, stage) → unfinished items in a stage that its pipeline no longer declares."""
    query = (
        select(item_table.c.pipeline, item_table.c.stage, func.count())
        .where(item_table.c.state.not_in(list(FINISHED)))
        .group_by(item_table.c.pipeline, item_table.c.stage)
    )
    declared = declarations.load_all(tx)
    return {
        (pipeline, stage): count
        for pipeline, stage, count in tx.conn.execute(query)
        if pipeline not in declared or not declared[pipeline].has_stage(stage)
    }


def in_stage(
    tx: Tx, pipeline: str, stage: str, *, keys: Collection[str] | None = None, limit: int = 50
) -> list[int]:
    """Ids of unfinished items at a stage, oldest first; only those of ``keys`` when given."""
    query = (
        select(item_table.c.id)
        .where(
            item_table.c.pipeline == pipeline,
            item_table.c.stage == stage,
            item_table.c.state.not_in(list(FINISHED)),
        )
        .order_by(item_table.c.id)
        .limit(limit)
    )
    if keys is not None:
        query = query.where(item_table.c.key.in_(list(keys)))
    return list(tx.conn.execute(query).scalars())

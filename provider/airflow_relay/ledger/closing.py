"""A run ends: close it, free its slots, move its item. Hand-off, reconciliation and tick share this way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from airflow_relay.core import lifecycle
from airflow_relay.core.completion import Completion
from airflow_relay.core.errors.taxonomy import RETRYABLE, ErrorClass
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.limits import Adaptive, Outcome
from airflow_relay.core.pipeline import Pipeline, PipelineError
from airflow_relay.core.states import IN_FLIGHT, EventKind, ItemState, RunResult, RunState
from airflow_relay.ledger import breakers, dead_letters, governing, items, results, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.results import Stored

NOT_ADAPTIVE: Final[Mapping[str, Adaptive]] = MappingProxyType({})


@dataclass(frozen=True)
class Closed:
    """What closing a run did.

    :param item: the item after it.
    :param already: the run was closed before; nothing was changed.
    :param current: the run was the item's current one, so it moved the item.
    """

    item: Item
    run: Run
    already: bool
    current: bool
    text: str


def close_run(
    tx: Tx,
    run_id: int,
    *,
    pipeline: Pipeline,
    completion: Completion,
    stored: Stored | None,
    clear_number: int | None,
    now: datetime,
    adaptive: Mapping[str, Adaptive] = NOT_ADAPTIVE,
) -> Closed:
    """Close a run once. The caller holds the dispatcher's lock and dispatches afterwards.

    :param adaptive: rules of the adaptive keys; how the run ended moves the limits of those that it held.
    """
    item, run, breaker = runs.lock_with_item(tx, run_id)
    if run.state is not RunState.OPEN and not is_amended(run, item, completion):
        return Closed(item, run, already=True, current=False, text="The run was closed before.")
    item = _adapt(tx, item, run, completion.result, completion.error_class, adaptive=adaptive, now=now)
    completion = _with_recorded_error(run, completion)
    runs.close(
        tx,
        run,
        result=completion.result,
        now=now,
        outcome=completion.outcome,
        error_class=completion.error_class,
        error_reason=completion.error_reason,
        clear_number=run.clear_number if clear_number is None else max(run.clear_number, clear_number),
    )
    if item.epoch != run.epoch:
        note = f"{run.run_id} ended ({completion.result.value}); it is not the current run and moves nothing"
        item = items.note(tx, item, note, now)
        breakers.run_ended(tx, run, breaker, result=RunResult.LOST, error_class=None, now=now)
        return Closed(item, run, already=False, current=False, text=note)
    return _move(tx, item, run, breaker, pipeline=pipeline, completion=completion, stored=stored, now=now)


def is_amended(run: Run, item: Item, completion: Completion) -> bool:
    """Whether a person has made a failed stage a success: by marking its work in Airflow, nothing ran again.

    Only while the item is still at this run: a recovery that was faster keeps what it has started.
    """
    return (
        run.state is RunState.CLOSED
        and run.result in (RunResult.FAILED, RunResult.LOST)
        and completion.result in (RunResult.SUCCESS, RunResult.SKIPPED)
        and item.epoch == run.epoch
        and item.state in (ItemState.FAILED, ItemState.DEAD)
    )


def _adapt(
    tx: Tx,
    item: Item,
    run: Run,
    result: RunResult,
    error_class: str | None,
    *,
    adaptive: Mapping[str, Adaptive],
    now: datetime,
) -> Item:
    """Let a success or an error move the adaptive limits of the keys that the run holds; logged at the item.

    An error that the retry policy has recorded was counted then: only what is new here comes here.
    """
    if not adaptive or (result is not RunResult.SUCCESS and error_class is None):
        return item
    outcome = Outcome(at=now, error_class=None if result is RunResult.SUCCESS else error_class)
    for told in governing.adapt_limits(tx, adaptive, runs.keys_of(tx, run.id), outcome, now):
        item = items.note(tx, item, told, now)
    return item


def _with_recorded_error(run: Run, completion: Completion) -> Completion:
    """Fill in what the retry policy recorded before Airflow knew that the task had failed."""
    if completion.result in (RunResult.SUCCESS, RunResult.SKIPPED) or completion.error_class:
        return completion
    return Completion(
        result=completion.result,
        outcome=completion.outcome,
        error_class=run.error_class or ErrorClass.UNKNOWN.value,
        error_reason=run.error_reason or completion.error_reason,
    )


def _move(
    tx: Tx,
    item: Item,
    run: Run,
    breaker: Any,
    *,
    pipeline: Pipeline,
    completion: Completion,
    stored: Stored | None,
    now: datetime,
) -> Closed:
    change: Change
    if completion.result in (RunResult.SUCCESS, RunResult.SKIPPED):
        try:
            change = lifecycle.completed(item, pipeline=pipeline, run=run, completion=completion, now=now)
        except PipelineError as error:
            completion = Completion(
                RunResult.FAILED, completion.outcome, ErrorClass.INVALID_REQUEST.value, str(error)
            )
            change = lifecycle.failed(run=run, completion=completion, retryable=False, now=now)
    else:
        retryable = ErrorClass(completion.error_class or ErrorClass.UNKNOWN) in RETRYABLE
        change = lifecycle.failed(run=run, completion=completion, retryable=retryable, now=now)
    if stored is not None:
        results.put(
            tx, item.id, stage=run.stage, visit=run.visit, stored=stored, outcome=completion.outcome, now=now
        )
    breakers.run_ended(
        tx, run, breaker, result=completion.result, error_class=completion.error_class, now=now
    )
    after = items.perform(tx, item, change)
    if item.state is ItemState.DEAD:
        dead_letters.resolve(tx, item.id, resolution="marked success", by="a person in Airflow", now=now)
    if after.state is ItemState.DEAD:
        dead_letters.enter(tx, after, change.text, now)
    return Closed(after, run, already=False, current=True, text=change.text)


def record_error(
    tx: Tx,
    run: Run,
    *,
    error_class: str,
    reason: str,
    task_id: str,
    will_retry: bool,
    now: datetime,
    adaptive: Mapping[str, Adaptive] = NOT_ADAPTIVE,
) -> None:
    """Keep the verdict on a task's error, before Airflow knows the task's state.

    :param adaptive: as in :func:`close_run`; with it the caller holds the dispatcher's lock.
    """
    item, run, _ = runs.lock_with_item(tx, run.id)
    # A callback may come after the hand-off: then it only refines why the item has failed.
    told_late = run.result is RunResult.FAILED and item.state is ItemState.FAILED
    if item.epoch != run.epoch or not (run.state is RunState.OPEN or told_late):
        return
    runs.change(tx, run.id, error_class=error_class, error_reason=reason)
    item = _adapt(tx, item, run, RunResult.FAILED, error_class, adaptive=adaptive, now=now)
    items.perform(
        tx,
        item,
        Change(
            kind=EventKind.ERROR_RECORDED,
            at=now,
            text=f"{run.stage}.{task_id}: {error_class}: {reason}" + (" (will retry)" if will_retry else ""),
            set={"error_class": error_class, "error_reason": reason},
            detail={"task": task_id},
            run=run.id,
        ),
    )


def withdraw(tx: Tx, run_id: int, *, pipeline: Pipeline, why: str, now: datetime) -> bool:
    """Take back a grant that has not started; the item waits again. The caller holds the dispatcher's lock.

    :return: false when the run has started, or ended, in the meantime.
    """
    item, run, breaker = runs.lock_with_item(tx, run_id)
    if run.state is not RunState.OPEN or run.started_at is not None:
        return False
    runs.change(tx, run.id, state=RunState.SUPERSEDED, result=RunResult.WITHDRAWN, closed_at=now)
    runs.free_slots(tx, run.id)
    breakers.run_ended(tx, run, breaker, result=RunResult.WITHDRAWN, error_class=None, now=now)
    if item.epoch != run.epoch or item.state not in IN_FLIGHT:
        return True
    change = lifecycle.ready_again(
        item,
        pipeline=pipeline,
        kind=EventKind.WITHDRAWN,
        text=f"Grant {run.epoch} of {run.stage} was taken back: {why}",
        now=now,
        ready_since=run.ready_since or now,
    )
    items.perform(tx, item, change)
    return True

"""How an item moves: each function returns a change, which the ledger performs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow_relay.core.completion import SKIPPED_OUTCOME, Completion
from airflow_relay.core.item import Change, Item, Run, snapshot_of
from airflow_relay.core.pipeline import DEFAULT_OUTCOME, End, Pipeline, PipelineError, Target
from airflow_relay.core.states import EventKind, ItemState, RunResult


class UnknownOutcomeError(PipelineError):
    """A router stage ended with an outcome that its route table does not name."""


def registered(*, pipeline: Pipeline, key: str, priority: int, now: datetime) -> tuple[Item, Change]:
    """A new item, ready for the entry stage. The item's id is 0 until the ledger has given one."""
    stage = pipeline.entry.name
    item = Item(
        id=0,
        pipeline=pipeline.name,
        key=key,
        state=ItemState.READY,
        priority=priority,
        registered_at=now,
        last_activity_at=now,
        visits={stage: 1},
        **_where(pipeline, stage),
        ready_since=now,
    )
    change = Change(
        kind=EventKind.REGISTERED, at=now, text=f"Registered, ready for {stage}", set=snapshot_of(item)
    )
    return item, change


def _where(pipeline: Pipeline, stage: str) -> dict[str, Any]:
    return {
        "stage": stage,
        "rank": pipeline.rank(stage),
        "keys": pipeline.keys(stage),
        "dag_id": pipeline.dag_id(stage),
        "klass": pipeline.klass,
    }


def completed(item: Item, *, pipeline: Pipeline, run: Run, completion: Completion, now: datetime) -> Change:
    """The change after a stage's success (or skip): the next stage, or an end.

    :raises UnknownOutcomeError: the router does not know the outcome; the hand-off treats it as a failure.
    """
    stage = pipeline.stage(run.stage)
    target = route(pipeline, run.stage, completion.outcome, completion.result)
    said = f" with outcome '{completion.outcome}'" if completion.outcome else ""
    skipped = " (skipped)" if completion.result is RunResult.SKIPPED else ""
    _, text, entering = _entering(item, pipeline, target, now)
    fields: dict[str, Any] = {"error_class": None, "error_reason": None}
    if stage.status:
        fields["status"] = stage.status
    fields.update(entering)
    return Change(
        kind=EventKind.COMPLETED,
        at=now,
        text=f"{run.stage} completed{skipped}{said}. {text}",
        set=fields,
        detail={"stage": run.stage, "outcome": completion.outcome, "result": completion.result.value},
        run=run.id,
    )


def route(
    pipeline: Pipeline, stage: str, outcome: str | None, result: RunResult = RunResult.SUCCESS
) -> Target:
    """Where an outcome leads.

    :raises UnknownOutcomeError: names the outcomes that the stage knows.
    """
    declared = pipeline.stage(stage)
    if isinstance(declared.to, str):
        return declared.to
    table = declared.to
    if outcome is None and result is RunResult.SKIPPED:
        outcome = SKIPPED_OUTCOME
    if outcome is not None and outcome in table:
        return table[outcome]
    if DEFAULT_OUTCOME in table:
        return table[DEFAULT_OUTCOME]
    known = ", ".join(table)
    got = "no outcome" if outcome is None else f"outcome {outcome!r}"
    raise UnknownOutcomeError(
        f"Stage {pipeline.name}.{stage} is a router and ended with {got}: it knows {known}. "
        "Return one of these, or add a 'default' route."
    )


def enter(item: Item, *, pipeline: Pipeline, target: Target, now: datetime) -> Change:
    """The change that sends an item to a stage or an end; a used-up visit bound diverts it."""
    kind, text, fields = _entering(item, pipeline, target, now)
    return Change(kind=kind, at=now, text=text, set=fields)


_Entering = tuple[EventKind, str, dict[str, Any]]


def _entering(item: Item, pipeline: Pipeline, target: Target, now: datetime) -> _Entering:
    """What happens, in words, and the item's new fields."""
    diverted: list[str] = []
    while not isinstance(target, End):
        stage = pipeline.stage(target)
        if stage.max_visits is None or item.visits.get(target, 0) < stage.max_visits:
            break
        if target in diverted:  # two bounded stages that divert to each other
            target = End.PERSON
            break
        diverted.append(target)
        target = stage.after_max_visits
    note = f"{diverted[0]} has used its visits. " if diverted else ""
    if target is End.PERSON:
        return _asks_a_person(item, pipeline, diverted, now, note)
    if isinstance(target, End):
        return _ended(target, now, note)
    fields = {
        "state": ItemState.READY,
        **_where(pipeline, target),
        "visits": _with_visit(item, target),
        "ready_since": now,
        "not_before": None,
        "finished_at": None,
    }
    return EventKind.READY, f"{note}Ready for {target}", fields


def _with_visit(item: Item, stage: str) -> dict[str, int]:
    return {**item.visits, stage: item.visits.get(stage, 0) + 1}


def _asks_a_person(
    item: Item, pipeline: Pipeline, diverted: list[str], now: datetime, note: str
) -> _Entering:
    """Into the dead letters. An item whose visits are used up waits in front of the stage: a redrive lets it
    in once more, and nothing before is done again.
    """
    kind, text, fields = _ended(End.PERSON, now, note)
    if not diverted:
        return kind, text, {**fields, "error_reason": "its route leads to a person"}
    stage = diverted[0]
    waiting = {**_where(pipeline, stage), "visits": _with_visit(item, stage)}
    return kind, text, {**fields, **waiting, "error_reason": f"{stage} has used its visits"}


_END_STATES = {
    End.DONE: (ItemState.DONE, "Done"),
    End.DISCARDED: (ItemState.DISCARDED, "Discarded"),
    End.PERSON: (ItemState.DEAD, "A person must decide"),
}


def _ended(target: End, now: datetime, note: str) -> _Entering:
    state, text = _END_STATES[target]
    kind = EventKind.DEAD_LETTERED if state is ItemState.DEAD else EventKind.COMPLETED
    fields = {"state": state, "finished_at": now, "ready_since": None, "not_before": None}
    return kind, note + text, fields


def failed(*, run: Run, completion: Completion, retryable: bool, now: datetime, text: str = "") -> Change:
    """The change after a failure: ``failed`` for the recovery sweep, or the dead letters at once."""
    reason = completion.error_reason or "no reason was reported"
    what = text or f"{run.stage} failed ({completion.error_class or 'unknown'}): {reason}"
    settled = {"error_class": completion.error_class, "error_reason": completion.error_reason}
    if retryable:
        return Change(
            kind=EventKind.FAILED,
            at=now,
            text=what,
            set={"state": ItemState.FAILED, **settled},
            detail={"stage": run.stage, "result": completion.result.value},
            run=run.id,
        )
    return Change(
        kind=EventKind.DEAD_LETTERED,
        at=now,
        text=f"{what.removesuffix('.')}. Not retryable: a person must decide",
        set={"state": ItemState.DEAD, "finished_at": now, **settled},
        detail={"stage": run.stage, "result": completion.result.value},
        run=run.id,
    )


def recovered(item: Item, *, pipeline: Pipeline, text: str, now: datetime, order: int = 0) -> Change:
    """The sweep lets the item run again: its next grant is charged as an attempt, not before now even by a
    clock that is set back meanwhile, since cap and cooldown were asked now.

    :param order: place in the sweep; the dispatcher keeps it among items of one stage.
    """
    return ready_again(
        item,
        pipeline=pipeline,
        kind=EventKind.RECOVERED,
        text=text,
        now=now,
        ready_since=now - timedelta(milliseconds=1) + timedelta(microseconds=min(order, 999)),
        not_before=now,
        recovering=True,
    )


def ready_again(
    item: Item, *, pipeline: Pipeline, kind: EventKind, text: str, now: datetime, **extra: Any
) -> Change:
    """The same stage and visit once more: recovery, redrive, a withdrawn grant."""
    return Change(
        kind=kind,
        at=now,
        text=text,
        set={
            "state": ItemState.READY,
            **_where(pipeline, item.stage),
            "ready_since": now,
            "not_before": None,
            "finished_at": None,
            **extra,
        },
    )

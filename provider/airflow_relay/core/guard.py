"""May this task of this run do its work? Asked before every task of a stage body executes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from shlex import quote
from typing import Final

from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import FINISHED, TERMINAL, RunState

REWIND_BURST: Final = 5
"""More rewinds than this in one pipeline within :data:`REWIND_BURST_WINDOW`: a bulk clear by mistake."""

REWIND_BURST_WINDOW: Final = timedelta(minutes=10)


class GuardAction(str, Enum):
    """What the task does. Only GO_ON, REOPEN and REWIND lead to work."""

    GO_ON = "go_on"
    SKIP_CLOSED = "skip_closed"  # a late second delivery: the stage was handed off already
    REOPEN = "reopen"  # a deliberate clear of the run that the item is still at: once per clear
    REFUSE_NEWER = "refuse_newer"  # a newer run of the same stage is at work
    REWIND = "rewind"  # a new epoch bound to this run; later runs are superseded
    REFUSE_FINISHED = "refuse_finished"  # an old or bulk clear: a person may force it by the CLI
    SKIP_SUPERSEDED = "skip_superseded"
    TIMED_OUT = "timed_out"  # past the run's absolute deadline
    NO_ROW = "no_row"  # no grant: an intake run, or a run that somebody started without an item
    WRONG_LEDGER = "wrong_ledger"  # granted by a ledger with another identity


CLEAR_ANSWERS: Final = frozenset(
    {GuardAction.REOPEN, GuardAction.REFUSE_NEWER, GuardAction.REWIND, GuardAction.REFUSE_FINISHED}
)
"""The answers to a clear of a closed run."""


@dataclass(frozen=True, kw_only=True)
class GuardDecision:
    """What the guard does, and why in words for the task's log and the run's note.

    :param record_clear: write the clear number into the run row (in the transaction of the decision, only
        while it is lower there). It makes each clear count once: a clear while the run was open is no clear
        of the closed run later, and a clear that was refused for one task is not granted to the next one.
    """

    action: GuardAction
    reason: str
    record_clear: bool = False


def decide(
    *,
    run: Run | None,
    item: Item | None,
    clear_number: int,
    current_run: Run | None,
    recent_clears: int,
    ledger_id: str,
    now: datetime,
    is_entry_dag: bool = False,
    named_ledger: str | None = None,
) -> GuardDecision:
    """Decide by the run row and the run's clear number (DESIGN 3.5), never by what conf says of the item.

    :param run: the row of this DAG run, or ``None`` when the ledger has none.
    :param item: the run's item; ``None`` only without a row, or when retention has removed it.
    :param clear_number: Airflow's ``dag_run.clear_number``: grows with each clear, with nothing else.
    :param current_run: the item's newest run, which is the one with the highest epoch.
    :param recent_clears: rewinds in the item's pipeline within :data:`REWIND_BURST_WINDOW` before ``now``.
    :param ledger_id: identity of the ledger that this process reads.
    :param now: aware UTC.
    :param is_entry_dag: the DAG is an entry stage's, whose runs without a row are intakes.
    :param named_ledger: the ledger id in the run's conf. It only picks the words for a run without a row;
        what it says can refuse a run and never admit one.
    """
    if run is None:
        return _without_row(ledger_id=ledger_id, is_entry_dag=is_entry_dag, named_ledger=named_ledger)
    if run.ledger_id != ledger_id:
        return _wrong_ledger(granted_by=run.ledger_id, ledger_id=ledger_id)
    if item is None:
        return GuardDecision(
            action=GuardAction.REFUSE_FINISHED,
            reason=f"Item {run.item_id} of this run is no longer in the ledger: register it again to run it.",
        )
    grown = clear_number > run.clear_number
    if run.state is RunState.CLOSED:
        return _closed(run, item, current_run, grown=grown, recent_clears=recent_clears)
    if run.state is RunState.SUPERSEDED or item.epoch != run.epoch:
        return _superseded(run, item, current_run)
    return _open(run, item, grown=grown, now=now)


def _without_row(*, ledger_id: str, is_entry_dag: bool, named_ledger: str | None) -> GuardDecision:
    if named_ledger is not None and named_ledger != ledger_id:
        return _wrong_ledger(granted_by=named_ledger, ledger_id=ledger_id)
    if named_ledger is not None:
        return GuardDecision(
            action=GuardAction.REFUSE_FINISHED,
            reason="The ledger no longer has this run: retention has removed it with its item.",
        )
    if is_entry_dag:
        return GuardDecision(action=GuardAction.NO_ROW, reason="An intake run: it has no item of its own.")
    return GuardDecision(
        action=GuardAction.NO_ROW,
        reason='This run has no item. Trigger the DAG with {"item_id": …} to run the stage for one.',
    )


def _wrong_ledger(*, granted_by: str, ledger_id: str) -> GuardDecision:
    return GuardDecision(
        action=GuardAction.WRONG_LEDGER,
        reason=(
            f"This run was granted by ledger {granted_by}, but this process reads ledger {ledger_id}. "
            "Check that the connection 'relay_ledger' is the same on every machine."
        ),
    )


def _superseded(run: Run, item: Item, current_run: Run | None) -> GuardDecision:
    if current_run is not None and current_run.id != run.id:
        text = f"This run is superseded by {current_run.run_id}."
    else:
        text = f"This run is superseded by a change of its item, which is now {item.state.value}."
    return GuardDecision(action=GuardAction.SKIP_SUPERSEDED, reason=text)


def _open(run: Run, item: Item, *, grown: bool, now: datetime) -> GuardDecision:
    if item.state in FINISHED:
        return GuardDecision(
            action=GuardAction.SKIP_CLOSED,
            reason=f"Item '{item.key}' is already {item.state.value}: its stage has nothing left to do.",
            record_clear=grown,
        )
    if run.deadline is not None and now >= run.deadline:
        return GuardDecision(
            action=GuardAction.TIMED_OUT,
            reason=f"{run.stage} is past its deadline of {run.deadline.isoformat()}.",
            record_clear=grown,
        )
    return GuardDecision(action=GuardAction.GO_ON, reason="The run is open.", record_clear=grown)


def _closed(
    run: Run, item: Item, current_run: Run | None, *, grown: bool, recent_clears: int
) -> GuardDecision:
    if not grown:
        ended = run.result.value if run.result else "closed"
        return GuardDecision(
            action=GuardAction.SKIP_CLOSED,
            reason=f"This run of {run.stage} is already closed ({ended}): nothing is left to do.",
        )
    action, reason = _cleared(run, item, current_run, recent_clears=recent_clears)
    return GuardDecision(action=action, reason=reason, record_clear=True)


def _cleared(run: Run, item: Item, current_run: Run | None, *, recent_clears: int) -> tuple[GuardAction, str]:
    """The run is closed and somebody has cleared it since."""
    what = f"{run.stage} of item '{item.key}'"
    # First of all, also for a finished or dead item: no later grant exists, so nothing can run twice, and
    # clearing the last thing that happened to an item can only be meant.
    if item.epoch == run.epoch:
        return GuardAction.REOPEN, f"Cleared: {what} runs once more."
    if current_run is not None and current_run.state is RunState.OPEN and current_run.stage == run.stage:
        return (
            GuardAction.REFUSE_NEWER,
            f"{what} is not run again: {current_run.run_id} is newer and at work.",
        )
    force = f"To force it: airflow relay rewind {quote(item.key)} {run.stage}"
    if item.state in TERMINAL:
        reason = f"{what} is not run again: the item is already {item.state.value}. {force}"
        return GuardAction.REFUSE_FINISHED, reason
    if recent_clears >= REWIND_BURST:
        minutes = int(REWIND_BURST_WINDOW.total_seconds() // 60)
        reason = (
            f"{what} is not run again: {recent_clears} items of {item.pipeline} were rewound within "
            f"{minutes} minutes, which looks like a bulk clear by mistake. {force}"
        )
        return GuardAction.REFUSE_FINISHED, reason
    reason = f"Cleared: {what} runs again. The item leaves {item.stage}; its later runs are superseded."
    return GuardAction.REWIND, reason

"""Every row of the guard's table, by name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_relay.core.guard import (
    CLEAR_ANSWERS,
    REWIND_BURST,
    GuardAction,
    GuardDecision,
    decide,
)
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import ItemState, PriorityClass, RunResult, RunState

NOW = datetime(2026, 3, 8, 12, tzinfo=timezone.utc)
HOME = "ledger-a"


def an_item(**changes: Any) -> Item:
    values: dict[str, Any] = {
        "id": 7,
        "pipeline": "content",
        "key": "article 42",
        "state": ItemState.RUNNING,
        "stage": "write",
        "epoch": 3,
        "registered_at": NOW - timedelta(days=1),
        "last_activity_at": NOW - timedelta(hours=1),
    }
    return Item(**{**values, **changes})


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": 30,
        "item_id": 7,
        "pipeline": "content",
        "stage": "write",
        "visit": 1,
        "epoch": 3,
        "dag_id": "content__write",
        "run_id": "relay:content:write:article-42:3",
        "ledger_id": HOME,
        "state": RunState.OPEN,
        "klass": PriorityClass.P2,
        "granted_at": NOW - timedelta(hours=2),
    }
    return Run(**{**values, **changes})


def a_closed_run(**changes: Any) -> Run:
    return a_run(**{"state": RunState.CLOSED, "result": RunResult.FAILED, "closed_at": NOW, **changes})


def guard(run: Run | None, item: Item | None = None, **changes: Any) -> GuardDecision:
    values: dict[str, Any] = {
        "run": run,
        "item": item or an_item(),
        "clear_number": 0,
        "current_run": run,
        "recent_clears": 0,
        "ledger_id": HOME,
        "now": NOW,
    }
    return decide(**{**values, **changes})


NEWER = a_run(id=40, epoch=4, run_id="relay:content:write:article-42:4")
LATER_STAGE = a_run(id=41, epoch=4, stage="review", run_id="relay:content:review:article-42:4")


# Row: run row open


def test_an_open_run_goes_on():
    decision = guard(a_run())
    assert decision.action is GuardAction.GO_ON
    assert not decision.record_clear


def test_a_partial_clear_while_the_run_is_open_goes_on_and_is_recorded():
    decision = guard(a_run(clear_number=1), clear_number=2)
    assert decision.action is GuardAction.GO_ON
    assert decision.record_clear, "else it would count as a deliberate clear once the run is closed"


def test_an_open_run_past_its_deadline_has_timed_out():
    late = guard(a_run(deadline=NOW))
    assert late.action is GuardAction.TIMED_OUT
    assert NOW.isoformat() in late.reason
    assert guard(a_run(deadline=NOW + timedelta(microseconds=1))).action is GuardAction.GO_ON


def test_a_closed_runs_old_deadline_does_not_stop_its_clear():
    run = a_closed_run(deadline=NOW - timedelta(hours=5))
    assert guard(run, clear_number=1).action is GuardAction.REOPEN


@pytest.mark.parametrize("state", [ItemState.DONE, ItemState.DISCARDED])
def test_an_open_run_whose_item_was_finished_by_a_person_does_no_more_work(state):
    decision = guard(a_run(), an_item(state=state))
    assert decision.action is GuardAction.SKIP_CLOSED
    assert state.value in decision.reason


# Row: closed, clear number as recorded


def test_a_late_second_delivery_of_a_closed_run_is_skipped():
    decision = guard(a_closed_run(result=RunResult.SUCCESS))
    assert decision.action is GuardAction.SKIP_CLOSED
    assert "already closed (success)" in decision.reason
    assert not decision.record_clear


def test_a_clear_that_was_answered_counts_only_once():
    assert guard(a_closed_run(clear_number=2), clear_number=2).action is GuardAction.SKIP_CLOSED
    assert guard(a_closed_run(clear_number=2), clear_number=3).action is GuardAction.REOPEN


# Row: closed, clear number grown, the item is still at this run


@pytest.mark.parametrize("state", list(ItemState))
def test_clearing_the_run_that_the_item_is_still_at_reopens_it_in_every_state_of_the_item(state):
    decision = guard(a_closed_run(), an_item(state=state), clear_number=1)
    assert decision.action is GuardAction.REOPEN
    assert decision.record_clear


def test_clearing_a_completed_stage_reopens_it_while_the_item_waits_ungranted_for_the_next():
    item = an_item(state=ItemState.READY, stage="review")
    assert guard(a_closed_run(result=RunResult.SUCCESS), item, clear_number=1).action is GuardAction.REOPEN


def test_a_burst_of_rewinds_elsewhere_does_not_stop_the_clear_of_a_failed_stage():
    decision = guard(a_closed_run(), an_item(state=ItemState.FAILED), clear_number=1, recent_clears=99)
    assert decision.action is GuardAction.REOPEN


# Row: closed, grown, a newer unfinished run at the same stage


def test_a_clear_is_refused_while_a_newer_run_of_the_stage_works_and_names_it():
    decision = guard(a_closed_run(), an_item(epoch=4), clear_number=1, current_run=NEWER)
    assert decision.action is GuardAction.REFUSE_NEWER
    assert NEWER.run_id in decision.reason
    assert decision.record_clear, (
        "the next task of the same clear must not rewind when the newer run has ended"
    )


def test_a_newer_run_of_the_stage_that_has_ended_does_not_refuse_a_clear():
    ended = a_closed_run(id=40, epoch=4)
    decision = guard(
        a_closed_run(), an_item(epoch=4, state=ItemState.FAILED), clear_number=1, current_run=ended
    )
    assert decision.action is GuardAction.REWIND


# Row: closed, grown, the item has moved on and is not terminal


@pytest.mark.parametrize("state", [ItemState.READY, ItemState.GRANTED, ItemState.RUNNING, ItemState.FAILED])
def test_clearing_an_earlier_stage_rewinds_the_item(state):
    item = an_item(epoch=4, stage="review", state=state)
    decision = guard(a_closed_run(), item, clear_number=1, current_run=LATER_STAGE)
    assert decision.action is GuardAction.REWIND
    assert decision.record_clear
    assert "leaves review" in decision.reason


# Row: closed, grown, item terminal, or a burst of such clears


@pytest.mark.parametrize("state", [ItemState.DONE, ItemState.DISCARDED, ItemState.DEAD])
def test_an_old_clear_of_an_ended_item_is_refused_and_says_how_to_force_it(state):
    decision = guard(a_closed_run(), an_item(epoch=4, state=state), clear_number=1, current_run=LATER_STAGE)
    assert decision.action is GuardAction.REFUSE_FINISHED
    assert "airflow relay rewind 'article 42' write" in decision.reason
    assert decision.record_clear


def test_the_sixth_rewind_within_the_window_is_taken_for_a_bulk_clear():
    moved_on = an_item(epoch=4, stage="review")
    values = {"clear_number": 1, "current_run": LATER_STAGE}
    fifth = guard(a_closed_run(), moved_on, recent_clears=REWIND_BURST - 1, **values)
    sixth = guard(a_closed_run(), moved_on, recent_clears=REWIND_BURST, **values)
    assert fifth.action is GuardAction.REWIND
    assert sixth.action is GuardAction.REFUSE_FINISHED
    assert "bulk clear" in sixth.reason
    assert "airflow relay rewind" in sixth.reason


# Row: run row superseded


@pytest.mark.parametrize("clear_number", [0, 1])
def test_a_superseded_run_is_skipped_and_names_what_took_over(clear_number):
    run = a_run(state=RunState.SUPERSEDED, superseded_by=41)
    decision = guard(run, an_item(epoch=4), clear_number=clear_number, current_run=LATER_STAGE)
    assert decision.action is GuardAction.SKIP_SUPERSEDED
    assert f"superseded by {LATER_STAGE.run_id}" in decision.reason


def test_an_open_run_of_an_older_epoch_is_fenced_like_a_superseded_one():
    decision = guard(a_run(), an_item(epoch=4), current_run=NEWER)
    assert decision.action is GuardAction.SKIP_SUPERSEDED
    assert NEWER.run_id in decision.reason


def test_a_run_superseded_without_a_later_grant_says_what_the_item_is_now():
    decision = guard(a_run(state=RunState.SUPERSEDED), an_item(state=ItemState.DISCARDED))
    assert decision.action is GuardAction.SKIP_SUPERSEDED
    assert "discarded" in decision.reason


# Runs that this ledger has not granted


def test_an_intake_run_has_no_row_and_says_so():
    decision = guard(None, is_entry_dag=True)
    assert decision.action is GuardAction.NO_ROW
    assert "intake" in decision.reason


def test_a_manual_run_without_an_item_says_how_to_name_one():
    decision = guard(None)
    assert decision.action is GuardAction.NO_ROW
    assert '{"item_id"' in decision.reason


def test_a_run_of_another_ledger_is_stopped_whatever_its_row_says():
    decision = guard(a_run(ledger_id="ledger-b"), clear_number=1)
    assert decision.action is GuardAction.WRONG_LEDGER
    assert "ledger-b" in decision.reason
    assert HOME in decision.reason


def test_a_run_without_a_row_that_names_another_ledger_is_stopped_even_in_the_entry_dag():
    decision = guard(None, named_ledger="ledger-b", is_entry_dag=True)
    assert decision.action is GuardAction.WRONG_LEDGER


def test_a_run_that_retention_has_removed_is_refused():
    assert guard(None, named_ledger=HOME).action is GuardAction.REFUSE_FINISHED
    values = {"current_run": None, "clear_number": 1, "recent_clears": 0, "ledger_id": HOME, "now": NOW}
    assert decide(run=a_closed_run(), item=None, **values).action is GuardAction.REFUSE_FINISHED


# All rows together


def test_only_answers_to_a_clear_are_recorded_for_a_closed_run():
    for state in ItemState:
        for epoch in (3, 4):
            for current in (None, NEWER, LATER_STAGE):
                for number in (0, 1):
                    decision = guard(
                        a_closed_run(),
                        an_item(state=state, epoch=epoch),
                        clear_number=number,
                        current_run=current,
                    )
                    assert decision.record_clear == (number == 1) == (decision.action in CLEAR_ANSWERS)

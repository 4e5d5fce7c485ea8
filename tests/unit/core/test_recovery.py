"""Every doom-spiral rule by name: each test fails when its rule is removed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from tests.unit.core.recovery_builders import (
    CHICAGO,
    HOUR,
    NOW,
    RULES,
    TODAY,
    a_run,
    an_item,
    failed,
    running,
)

from airflow_relay.core.errors.taxonomy import NOT_RETRYABLE, RETRYABLE
from airflow_relay.core.recovery import (
    RECORDED_AS,
    Finding,
    RecoveryAction,
    RecoveryRules,
    RunLiveness,
    attempts_today,
    charge,
    decide,
    fresh_budget,
    is_late,
    local_day,
)
from airflow_relay.core.states import ItemState, RunResult, WaitReason


def test_a_stale_failed_item_is_refired_and_charged():
    decision = failed()
    assert decision.action is RecoveryAction.REFIRE
    assert decision.charges
    assert decision.reason == "write runs again after timeout: attempt 1 of 3 today."
    assert (decision.item_id, decision.epoch) == (7, 3)


# Rule: stale when the last activity is older than 2 h


def test_an_item_whose_last_activity_is_younger_than_two_hours_is_left():
    decision = failed(last_activity_at=NOW - 2 * HOUR + timedelta(seconds=1))
    assert decision.action is RecoveryAction.LEAVE
    assert decision.next_allowed_at == NOW + timedelta(seconds=1)
    assert failed(last_activity_at=NOW - 2 * HOUR).action is RecoveryAction.REFIRE


def test_a_clock_that_was_set_back_makes_nothing_stale():
    assert failed(last_activity_at=NOW + 5 * HOUR).action is RecoveryAction.LEAVE


# Rule: its run is really gone


@pytest.mark.parametrize("days", [0.25, 3])
def test_a_live_run_is_left_alone_however_long_it_takes(days):
    item = an_item(state=ItemState.RUNNING, last_activity_at=NOW - timedelta(days=days))
    decision = running(RunLiveness.ALIVE, item=item)
    assert decision.action is RecoveryAction.LEAVE
    assert decision.record is None


def test_a_failed_item_whose_run_works_again_in_airflow_is_left_alone():
    assert running(RunLiveness.ALIVE, item=an_item()).action is RecoveryAction.LEAVE


def test_a_live_run_beyond_its_expected_time_alerts_and_is_not_refired():
    decision = running(RunLiveness.ALIVE_LATE)
    assert decision.action is RecoveryAction.ALERT_LATE
    assert not decision.charges


def test_a_late_run_is_alerted_once():
    assert running(RunLiveness.ALIVE_LATE, late_alerted=True).action is RecoveryAction.LEAVE


def test_a_run_is_late_only_beyond_the_expected_time_since_it_started():
    assert is_late(a_run(started_at=NOW - 2 * HOUR), expected=HOUR, now=NOW)
    assert not is_late(a_run(started_at=NOW - HOUR), expected=HOUR, now=NOW)
    assert not is_late(a_run(started_at=None, granted_at=NOW - 9 * HOUR), expected=HOUR, now=NOW)


def test_when_airflow_was_not_asked_nothing_is_done():
    assert running(RunLiveness.NOT_ASKED).action is RecoveryAction.LEAVE


@pytest.mark.parametrize("liveness", [RunLiveness.GONE, RunLiveness.FAILED_UNTOLD])
def test_a_run_that_died_without_telling_is_recorded_as_what_it_is_and_refired(liveness):
    decision = running(liveness)
    assert decision.action is RecoveryAction.REFIRE
    assert decision.record is RECORDED_AS[liveness]
    assert decision.record is not None


def test_a_dead_run_is_recorded_also_while_its_item_may_not_be_refired_yet():
    item = an_item(state=ItemState.RUNNING, attempts=1, attempts_day=TODAY, last_attempt_at=NOW - HOUR)
    decision = running(RunLiveness.GONE, item=item)
    assert decision.action is RecoveryAction.WAIT_COOLDOWN
    assert decision.record is RunResult.LOST


def test_a_run_that_ended_well_without_telling_is_handed_off_and_not_refired():
    decision = running(RunLiveness.SUCCEEDED_UNTOLD)
    assert decision.action is RecoveryAction.RECORD_SUCCESS
    assert decision.record is RunResult.SUCCESS


def test_the_error_of_the_dead_run_decides_not_that_of_an_earlier_one():
    old_error = an_item(state=ItemState.RUNNING, error_class="auth")
    assert running(RunLiveness.GONE, item=old_error).action is RecoveryAction.REFIRE
    fatal = a_run(error_class="auth")
    item = an_item(state=ItemState.RUNNING, error_class="timeout")
    assert running(RunLiveness.FAILED_UNTOLD, run=fatal, item=item).action is RecoveryAction.DEAD_LETTER


# Rule: 3 attempts per item and day


def test_at_the_cap_the_item_becomes_a_dead_letter_with_one_escalation():
    decision = failed(attempts=3, attempts_day=TODAY, last_attempt_at=NOW - 3 * HOUR)
    assert decision.action is RecoveryAction.DEAD_LETTER
    assert decision.escalates
    assert not decision.charges
    assert "3 of 3 recovery attempts used today (America/Chicago)" in decision.reason


def test_below_the_cap_it_is_refired():
    decision = failed(attempts=2, attempts_day=TODAY, last_attempt_at=NOW - 3 * HOUR)
    assert decision.action is RecoveryAction.REFIRE
    assert "attempt 3 of 3" in decision.reason


def test_yesterdays_attempts_do_not_count():
    item = {"attempts": 3, "attempts_day": "2026-06-09", "last_attempt_at": NOW - 20 * HOUR}
    assert failed(**item).action is RecoveryAction.REFIRE


def test_a_dead_item_is_never_refired_and_escalates_no_second_time():
    for changes in ({}, {"attempts": 3, "attempts_day": TODAY}, {"error_class": "auth"}):
        decision = failed(state=ItemState.DEAD, **changes)
        assert decision.action is RecoveryAction.LEAVE
        assert not decision.escalates


@pytest.mark.parametrize("state", [ItemState.DONE, ItemState.DISCARDED])
def test_an_ended_item_is_left(state):
    assert failed(state=state).action is RecoveryAction.LEAVE


def test_with_a_cap_of_zero_a_person_decides_at_once():
    finding = Finding(item=an_item(), liveness=RunLiveness.NO_RUN)
    rules = RecoveryRules(attempts_per_day=0)
    assert decide(finding, now=NOW, rules=rules).action is RecoveryAction.DEAD_LETTER


def test_a_redrive_gives_a_fresh_budget_and_keeps_the_cooldown():
    spent = {"attempts": 3, "attempts_day": TODAY, "last_attempt_at": NOW - 3 * HOUR}
    assert failed(**{**spent, **fresh_budget()}).action is RecoveryAction.REFIRE
    just_now = {**spent, "last_attempt_at": NOW - HOUR, **fresh_budget()}
    assert failed(**just_now).action is RecoveryAction.WAIT_COOLDOWN


def test_the_day_is_the_calendar_day_of_the_pipelines_timezone():
    late_evening = datetime(2026, 6, 11, 4, 59, tzinfo=timezone.utc)  # 23:59 on the 10th in Chicago
    assert local_day(late_evening, CHICAGO) == "2026-06-10"
    assert local_day(late_evening + timedelta(minutes=1), CHICAGO) == "2026-06-11"
    assert local_day(late_evening, "UTC") == "2026-06-11"


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-08", 23), ("2026-11-01", 25), ("2026-06-10", 24)],
    ids=["spring", "fall", "usual"],
)
def test_a_day_has_as_many_hours_as_its_clock_change_leaves(day, hours):
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    instants = [start + timedelta(minutes=30 * n) for n in range(96)]
    assert sum(local_day(at, CHICAGO) == day for at in instants) == hours * 2


def test_charging_counts_within_the_day_and_begins_again_on_the_next():
    item = an_item()
    for number, at in enumerate([NOW, NOW + 2 * HOUR, NOW + 4 * HOUR], start=1):
        fields = charge(item, now=at, timezone=CHICAGO)
        assert fields == {
            "attempts": number,
            "attempts_day": TODAY,
            "last_attempt_at": at,
            "recovering": False,
        }
        item = an_item(**fields)
    tomorrow = NOW + 24 * HOUR
    assert attempts_today(item, now=tomorrow, timezone=CHICAGO) == 0
    assert charge(item, now=tomorrow, timezone=CHICAGO)["attempts"] == 1
    assert charge(item, now=tomorrow, timezone=CHICAGO)["attempts_day"] == "2026-06-11"


def test_attempts_of_a_day_that_lies_ahead_still_count_when_a_clock_was_set_back():
    item = an_item(attempts=3, attempts_day="2026-06-11")
    assert attempts_today(item, now=NOW, timezone=CHICAGO) == 3
    assert charge(item, now=NOW, timezone=CHICAGO)["attempts"] == 4
    assert charge(item, now=NOW, timezone=CHICAGO)["attempts_day"] == "2026-06-11"


def test_a_pipeline_that_moves_to_another_timezone_gives_no_second_budget_for_the_same_hours():
    spent = {
        "attempts": 3,
        "attempts_day": TODAY,
        "last_attempt_at": NOW - 2 * HOUR,
    }  # 01:00 of the 11th in Tokyo
    finding = Finding(item=an_item(**spent), liveness=RunLiveness.NO_RUN, timezone="Asia/Tokyo")
    assert decide(finding, now=NOW, rules=RULES).action is RecoveryAction.DEAD_LETTER
    assert decide(finding, now=NOW + 24 * HOUR, rules=RULES).action is RecoveryAction.REFIRE


# Rule: cooldown of 2 h in elapsed time


def test_within_the_cooldown_the_item_waits():
    last = NOW - 2 * HOUR + timedelta(seconds=1)
    decision = failed(attempts=1, attempts_day=TODAY, last_attempt_at=last)
    assert decision.action is RecoveryAction.WAIT_COOLDOWN
    assert decision.next_allowed_at == last + 2 * HOUR
    assert failed(last_attempt_at=NOW - 2 * HOUR).action is RecoveryAction.REFIRE


@pytest.mark.parametrize(
    "last",
    [
        datetime(2026, 3, 8, 7, 30, tzinfo=timezone.utc),  # 01:30, half an hour before 02:00 becomes 03:00
        datetime(2026, 11, 1, 6, 30, tzinfo=timezone.utc),  # the first 01:30 of two
    ],
    ids=["spring", "fall"],
)
def test_the_cooldown_is_elapsed_time_across_a_clock_change(last):
    item = an_item(last_attempt_at=last, last_activity_at=last - 9 * HOUR)
    finding = Finding(item=item, liveness=RunLiveness.NO_RUN, timezone=CHICAGO)
    early = decide(finding, now=last + timedelta(minutes=119), rules=RULES)
    assert early.action is RecoveryAction.WAIT_COOLDOWN
    assert early.next_allowed_at == last + 2 * HOUR
    assert decide(finding, now=last + 2 * HOUR, rules=RULES).action is RecoveryAction.REFIRE


# Rule: non-retryable error classes go to the dead letters


@pytest.mark.parametrize("error_class", sorted(NOT_RETRYABLE))
def test_a_non_retryable_failure_goes_to_the_dead_letters(error_class):
    decision = failed(error_class=error_class.value)
    assert decision.action is RecoveryAction.DEAD_LETTER
    assert decision.escalates
    assert error_class.value in decision.reason


@pytest.mark.parametrize("error_class", [*sorted(RETRYABLE), None, "a_class_of_a_later_version"])
def test_a_retryable_unknown_or_missing_class_is_refired(error_class):
    value = getattr(error_class, "value", error_class)
    assert failed(error_class=value).action is RecoveryAction.REFIRE


# Rule: not charged as an attempt


@pytest.mark.parametrize(
    ("obstacle", "action"),
    [
        (WaitReason.PAUSED, RecoveryAction.SKIP_PAUSED),
        (WaitReason.BREAKER, RecoveryAction.SKIP_BREAKER),
        (WaitReason.SLOT, RecoveryAction.SKIP_SLOT),
    ],
)
@pytest.mark.parametrize("state", [ItemState.FAILED, ItemState.READY])
def test_a_paused_target_an_open_breaker_or_a_missing_slot_costs_no_attempt(obstacle, action, state):
    finding = Finding(item=an_item(state=state), liveness=RunLiveness.NO_RUN, obstacle=obstacle)
    decision = decide(finding, now=NOW, rules=RULES)
    assert decision.action is action
    assert not decision.charges


def test_a_run_queued_behind_a_paused_dag_is_neither_refired_nor_charged():
    decision = running(RunLiveness.QUEUED_PAUSED, item=an_item(state=ItemState.GRANTED))
    assert decision.action is RecoveryAction.SKIP_PAUSED
    assert not decision.charges
    assert "content__write" in decision.reason


def test_an_unconfirmed_grant_is_sent_again_without_a_charge():
    decision = running(RunLiveness.UNCONFIRMED, item=an_item(state=ItemState.GRANTED))
    assert decision.action is RecoveryAction.RESEND
    assert not decision.charges


def test_an_unconfirmed_grant_at_the_cap_is_still_sent():
    item = an_item(state=ItemState.GRANTED, attempts=3, attempts_day=TODAY, last_attempt_at=NOW - HOUR)
    assert running(RunLiveness.UNCONFIRMED, item=item).action is RecoveryAction.RESEND


def test_a_fresh_grant_is_left_to_its_sender():
    item = an_item(state=ItemState.GRANTED, last_activity_at=NOW - timedelta(minutes=1))
    assert running(RunLiveness.UNCONFIRMED, item=item).action is RecoveryAction.LEAVE


@pytest.mark.parametrize("obstacle", [None, WaitReason.HOLD, WaitReason.NEXT, WaitReason.BUDGET])
def test_a_ready_item_is_left_to_the_dispatcher(obstacle):
    finding = Finding(item=an_item(state=ItemState.READY), liveness=RunLiveness.NO_RUN, obstacle=obstacle)
    decision = decide(finding, now=NOW, rules=RULES)
    assert decision.action is RecoveryAction.LEAVE
    assert "dispatcher" in decision.reason


def test_an_item_in_flight_without_any_run_is_refired():
    finding = Finding(item=an_item(state=ItemState.GRANTED, error_class=None), liveness=RunLiveness.NO_RUN)
    assert decide(finding, now=NOW, rules=RULES).action is RecoveryAction.REFIRE

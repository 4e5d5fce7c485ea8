"""The doom-spiral rules as the ledger performs them: each test fails when its rule is removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from airflow_relay.core.finding import RecoveryAction, RunLiveness
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.rules import RecoveryRules, RuleSet
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import EventKind, ItemState, RunResult, RunState
from airflow_relay.ledger import breakers, recovering, runs
from airflow_relay.ledger.recovering import Heard
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.operations import actions
from support.pipelines import START, Driver, line
from support.sweeping import RULES, Sweeper, alert_texts, fail, letters, one_failed


def test_a_stale_failed_item_is_refired_once_and_charged_one_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    (granted,) = sweeper.sweep()
    item = drive.item("a")
    assert (item.state, item.attempts, item.attempts_day) == (ItemState.GRANTED, 1, "2026-03-02")
    assert item.last_attempt_at == drive.now
    assert granted.attempt == 1
    assert sweeper.sweep() == []


def test_an_item_is_left_while_its_last_activity_is_young(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2, seconds=-1)
    assert sweeper.plan().counts == {}
    drive.later(seconds=1)
    assert sweeper.only() is RecoveryAction.REFIRE


def test_the_stale_time_of_a_pipeline_holds_for_its_items_alone(drive):
    one_failed(drive)
    patient = RuleSet(pipelines={"line": RecoveryRules(stale=timedelta(hours=5))})
    drive.later(hours=3)
    assert Sweeper(drive, patient).plan().acting == ()
    drive.later(hours=2)
    assert Sweeper(drive, patient).only() is RecoveryAction.REFIRE


@pytest.mark.parametrize("liveness", [RunLiveness.ALIVE, RunLiveness.NOT_ASKED])
def test_a_run_that_is_alive_or_unknown_is_never_touched(drive, sweeper, liveness):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.later(hours=5)
    assert sweeper.sweep({run.item_id: Heard(liveness)}) == []
    assert drive.item("a").state is ItemState.RUNNING
    assert drive.run(run).state is RunState.OPEN


def test_a_run_that_nobody_has_asked_airflow_about_is_left(drive, sweeper):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.later(hours=5)
    assert sweeper.only() is RecoveryAction.LEAVE
    assert sweeper.sweep() == []


def test_a_late_run_is_told_of_once_and_not_refired(drive, sweeper):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    heard = {run.item_id: Heard(RunLiveness.ALIVE_LATE)}
    drive.later(hours=3)
    assert sweeper.sweep(heard) == []
    drive.later(hours=3)
    assert sweeper.sweep(heard) == []
    assert [t for t in alert_texts(drive) if "later than expected" in t] == alert_texts(drive)
    assert len(alert_texts(drive)) == 1
    assert drive.item("a").attempts == 0


def test_a_run_found_dead_counts_from_its_last_activity_before_that(drive, sweeper):
    """Recording the end is an activity of the ledger, not of the item."""
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    idle_since = drive.item("a").last_activity_at
    drive.later(hours=3)
    drive.end(run, result=RunResult.LOST)
    assert sweeper.plan().acting == ()
    (granted,) = sweeper.sweep({run.item_id: Heard(RunLiveness.NO_RUN, since=idle_since)})
    assert granted.epoch == run.epoch + 1
    assert drive.item("a").attempts == 1


def test_a_run_queued_behind_a_paused_dag_waits_and_takes_no_place_in_the_sweep(drive):
    """The DAG may be unpaused between the question and the decision: Airflow then starts the run itself."""
    (queued,) = drive.intake("queued")
    drive.ledger.confirm([queued.id], drive.now)
    one_failed(drive, "failed")
    drive.later(hours=3)
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan({queued.item_id: Heard(RunLiveness.QUEUED_PAUSED)})
    assert plan.counts == {RecoveryAction.SKIP_PAUSED: 1, RecoveryAction.REFIRE: 1}
    assert [run.item_id for run in sweeper.perform(plan)] == [drive.item("failed").id]
    assert drive.run(queued).state is RunState.OPEN
    assert drive.item("queued").attempts == 0


def test_an_item_that_ended_during_the_sweep_is_left_and_takes_no_place_in_it(drive):
    """This very sweep has recorded its lost run; before it decides, a person discards the item."""
    (run,) = drive.intake("ended")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    idle_since = drive.item("ended").last_activity_at
    drive.later(seconds=1)
    one_failed(drive, "failed")
    drive.later(hours=3)
    drive.end(run, result=RunResult.LOST)
    actions.discard(drive.ledger, "ended", by="ada", now=drive.now, pipeline="line")
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan({run.item_id: Heard(RunLiveness.NO_RUN, since=idle_since)})
    assert plan.counts == {RecoveryAction.LEAVE: 1, RecoveryAction.REFIRE: 1}
    assert [granted.item_id for granted in sweeper.perform(plan)] == [drive.item("failed").id]
    assert drive.item("ended").state is ItemState.DISCARDED


def test_an_item_in_flight_whose_run_is_closed_is_taken_up(drive, sweeper):
    """No path leads there; if one did, the item would still be moved."""
    (run,) = drive.intake("a")
    with drive.ledger.dispatcher() as tx:
        runs.close(tx, run, result=RunResult.LOST, now=drive.now)
    drive.later(hours=2)
    assert len(sweeper.sweep()) == 1


def test_three_attempts_a_day_then_a_dead_letter_with_one_alert(drive, sweeper):
    run = one_failed(drive)
    for number in (1, 2, 3):
        drive.later(hours=2)
        (run,) = sweeper.sweep()
        fail(drive, run)
        assert drive.item("a").attempts == number
    drive.later(hours=2)
    for _ in range(3):
        assert sweeper.sweep() == []
    item = drive.item("a")
    assert item.state is ItemState.DEAD
    assert item.attempts == 3
    (letter,) = letters(drive)
    assert "3 of 3 recovery attempts used today" in letter.reason
    assert len(alert_texts(drive)) == 1
    whats = [entry["what"] for entry in letter.trail]
    assert whats.count(EventKind.RECOVERED.value) == 3
    assert whats.count(EventKind.FAILED.value) == 4


def test_attempts_of_yesterday_do_not_count_by_the_pipelines_own_calendar(ledger):
    tokyo = Pipeline("tokyo", [Stage("only", to=END, schedule="0 7 * * *")], timezone="Asia/Tokyo")
    drive = Driver(ledger, tokyo)
    drive.now = START.replace(hour=7)  # 16:00 in Tokyo
    sweeper = Sweeper(drive)
    run = one_failed(drive)
    for _ in range(3):
        drive.later(hours=2)
        (run,) = sweeper.sweep()
        fail(drive, run)
    assert drive.item("a").attempts_day == "2026-03-02"
    drive.later(hours=2, minutes=30)  # 15:30 UTC is 00:30 of the next day there
    (run,) = sweeper.sweep()
    assert (drive.item("a").attempts, drive.item("a").attempts_day) == (1, "2026-03-03")


def test_no_second_attempt_within_the_cooldown(drive):
    eager = RuleSet(default=RecoveryRules(stale=timedelta(minutes=1)))
    sweeper = Sweeper(drive, eager)
    one_failed(drive)
    drive.later(minutes=1)
    (run,) = sweeper.sweep()
    fail(drive, run)
    drive.later(hours=2, seconds=-1)
    assert sweeper.only() is RecoveryAction.WAIT_COOLDOWN
    assert sweeper.sweep() == []
    drive.later(seconds=1)
    assert len(sweeper.sweep()) == 1


def test_a_non_retryable_error_goes_to_the_dead_letters_without_a_refire(drive, sweeper):
    one_failed(drive)
    with drive.ledger.write() as tx:  # as an older version has left it
        tx.conn.execute(update(item_table).values(error_class="auth"))
    drive.later(hours=2)
    assert sweeper.sweep() == []
    assert drive.item("a").state is ItemState.DEAD
    assert letters(drive)[0].error_class == "auth"


def test_a_paused_target_costs_no_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(paused_dags=frozenset({"line__first"}))
    assert sweeper.only() is RecoveryAction.SKIP_PAUSED
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0
    drive.conditions = Conditions()
    assert len(sweeper.sweep()) == 1


def test_an_open_breaker_costs_no_attempt_and_half_open_lets_one_through(drive, sweeper):
    granted = drive.intake(*"abcde")
    for run in granted:
        fail(drive, run, "server_error")
    drive.later(hours=2)
    with drive.ledger.dispatcher() as tx:
        breakers.change(
            tx,
            "line",
            "first",
            drive.now,
            lambda b: breakers.rules.open_by_hand(b, now=drive.now, reason="test"),
        )
    assert sweeper.plan().counts == {RecoveryAction.SKIP_BREAKER: 5}
    assert sweeper.sweep() == []
    drive.later(hours=4)
    assert sweeper.plan().counts == {RecoveryAction.REFIRE: 1, RecoveryAction.SKIP_BREAKER: 4}
    assert len(sweeper.sweep()) == 1
    assert sum(drive.item(key).attempts for key in "abcde") == 1


@pytest.mark.parametrize("scope", ["line", "P2"])
def test_a_hold_costs_no_attempt(drive, sweeper, scope):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(holds={scope: "the agents are talked to"})
    assert sweeper.only() is RecoveryAction.LEAVE
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0


def test_a_used_up_budget_costs_no_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(over_budget=frozenset({"line"}))
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0


def test_a_dry_run_changes_nothing(drive):
    one_failed(drive)
    drive.later(hours=2)
    before = drive.item("a")
    sweeper = Sweeper(drive, RuleSet(default=RecoveryRules(dry_run=True)))
    assert sweeper.only() is RecoveryAction.DRY_RUN
    assert sweeper.sweep() == []
    assert drive.item("a") == before


def test_an_excluded_item_is_left(drive):
    one_failed(drive)
    drive.later(hours=2)
    sweeper = Sweeper(drive, RuleSet(default=RecoveryRules(exclude=frozenset({"a"}))))
    assert sweeper.only() is RecoveryAction.EXCLUDED
    assert sweeper.sweep() == []


def test_a_decision_of_before_an_exclude_or_a_dry_run_is_no_longer_performed(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    plan = sweeper.plan()
    careful = Sweeper(drive, RuleSet(default=RecoveryRules(exclude=frozenset({"a"}))))
    assert careful.perform(plan) == []
    assert drive.item("a").attempts == 0


def test_a_ready_item_is_left_to_the_dispatcher(ledger):
    drive = Driver(ledger, line())
    drive.conditions = Conditions(limits={"line.first": 0})
    assert drive.intake("a") == []
    drive.later(days=3)
    sweeper = Sweeper(drive)
    with ledger.read() as tx:
        assert recovering.count_stale(tx, RULES, drive.now).ready == 1
    assert sweeper.plan().counts == {}
    assert drive.item("a").attempts == 0


def test_items_of_a_stage_that_no_longer_exists_are_counted_and_do_not_use_the_cap(drive):
    granted = drive.intake(*"abc")
    for run in granted:
        fail(drive, run)
    with drive.ledger.write() as tx:
        gone = update(item_table).where(item_table.c.key.in_(["a", "b"]))
        tx.conn.execute(gone.values(stage="removed", rank=1000))
    drive.later(hours=2)
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan()
    assert plan.stranded == 2
    assert [d.key for d in plan.acting] == ["c"]

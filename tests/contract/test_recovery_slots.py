"""Failed items and full stages: an attempt is charged when it is granted, and nobody waits for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_relay.core.finding import RecoveryAction
from airflow_relay.core.item import replay
from airflow_relay.core.rules import RuleSet
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState
from airflow_relay.ledger import (
    closing,
    items,
)
from airflow_relay.operations import actions
from support.pipelines import Driver, line
from support.sweeping import Sweeper, fail, one_failed


def test_a_missing_slot_costs_no_attempt(ledger):
    drive = Driver(ledger, line(first=2))
    sweeper = Sweeper(drive)
    granted = drive.intake(*"abc")
    while granted:
        granted += fail(drive, granted.pop())
    drive.later(hours=2)
    assert sweeper.plan().counts == {RecoveryAction.REFIRE: 3}
    first, second = sweeper.sweep()
    assert {first.attempt, second.attempt} == {1}
    assert sorted(drive.item(key).attempts for key in "abc") == [0, 1, 1]
    (waits,) = [drive.item(key) for key in "abc" if drive.item(key).state is ItemState.READY]
    drive.later(minutes=90)
    drive.serve(first)
    item = drive.item(waits.key)
    assert (item.state, item.attempts, item.last_attempt_at) == (ItemState.GRANTED, 1, drive.now)


def test_a_stage_that_is_always_full_takes_a_failed_item_up_in_its_turn(ledger):
    """One item comes and one goes each half hour, three wait always: no sweep ever finds the slot free."""
    drive = Driver(ledger, line(second=1))
    drive.conditions = Conditions(limits={"airflow.runs": 1000, "line.second": 1})
    sweeper = Sweeper(drive)
    coming = drive.intake(*(f"item-{n:02}" for n in range(40)))
    (lost,) = drive.serve(coming.pop(0))
    fail(drive, lost)
    (busy,) = drive.serve(coming.pop(0))
    for _ in range(3):
        assert drive.serve(coming.pop(0)) == []
    for half_hour in range(1, 30):
        drive.later(minutes=30)
        assert drive.serve(coming.pop(0)) == []
        if half_hour % 4 == 0:
            assert sweeper.sweep() == []
            assert drive.item("item-00").attempts == 0
        (busy,) = [run for run in drive.serve(busy) if run.stage == "second"]
        if busy.item_id == lost.item_id:
            break
    item = drive.item("item-00")
    assert (item.state, item.attempts, item.last_attempt_at) == (ItemState.GRANTED, 1, drive.now)


def test_the_places_of_a_sweep_go_to_items_that_can_run_at_once_before_those_that_queue(ledger):
    drive = Driver(ledger, line(second=1))
    coming = drive.intake("near", "nearer", "busy", "far")
    for run in coming[:2]:
        (second,) = drive.serve(run)
        fail(drive, second)
    drive.serve(coming[2])  # holds the only slot of the second stage
    fail(drive, coming[3])
    drive.later(hours=2)
    plan = Sweeper(drive, RuleSet(refires_per_sweep=1)).plan()
    assert [d.key for d in plan.acting] == ["far"]
    assert plan.counts[RecoveryAction.SKIP_SLOT] == 2
    plan = Sweeper(drive, RuleSet(refires_per_sweep=2)).plan()
    assert [d.key for d in plan.acting] == ["near", "far"]


def queued(drive: Driver) -> None:
    """Item ``failed`` is ready again while ``busy`` holds the only slot of the first stage."""
    one_failed(drive, "failed")
    drive.intake("busy")
    drive.later(hours=2)
    assert Sweeper(drive).sweep() == []
    assert drive.item("failed").recovering


@pytest.mark.parametrize("moved_on", [timedelta(0), timedelta(hours=3)])
def test_a_clock_that_is_set_back_brings_no_attempt_before_the_rules_allowed_it(ledger, moved_on):
    drive = Driver(ledger, line(first=1))
    queued(drive)
    drive.later(hours=-1)
    drive.conditions = Conditions(limits={"line.first": 2})
    assert drive.dispatch() == []
    drive.now += timedelta(hours=1) + moved_on
    (run,) = drive.dispatch()
    assert (run.attempt, drive.item("failed").last_attempt_at) == (1, drive.now)


def test_a_person_who_takes_the_item_over_charges_no_attempt(ledger):
    drive = Driver(ledger, line(first=1))
    queued(drive)
    actions.rewind(ledger, "failed", "second", by="ada", now=drive.now, pipeline="line")
    (run,) = drive.dispatch()
    assert (run.stage, run.attempt, drive.item("failed").attempts) == ("second", 0, 0)


def test_a_grant_that_is_taken_back_is_charged_once(ledger):
    drive = Driver(ledger, line(first=1))
    one_failed(drive, "failed")
    drive.later(hours=2)
    (run,) = Sweeper(drive).sweep()
    with ledger.dispatcher() as tx:
        assert closing.withdraw(tx, run.id, pipeline=drive.pipeline, why="paused", now=drive.now)
    drive.later(hours=1)
    (again,) = drive.dispatch()
    assert (again.attempt, drive.item("failed").attempts) == (1, 1)
    item = drive.item("failed")
    with ledger.read() as tx:
        assert replay(item.id, items.log_of(tx, item.id)) == item

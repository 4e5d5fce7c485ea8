"""Two sweeps at once, and decisions performed again: one attempt, one run."""

from __future__ import annotations

import threading
from dataclasses import replace

from airflow_relay.core.item import Run, replay
from airflow_relay.core.states import EventKind
from airflow_relay.ledger import items
from airflow_relay.ledger.recovering import Plan
from support.sweeping import fail, one_failed


def test_two_sweeps_that_decided_the_same_charge_once_and_start_once(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    first, second = sweeper.plan(), sweeper.plan()
    assert len(sweeper.perform(first)) == 1
    assert sweeper.perform(second) == []
    assert drive.item("a").attempts == 1


def test_two_sweeps_in_two_threads_charge_each_item_once(drive, sweeper):
    for run in drive.intake(*(f"item-{i}" for i in range(20))):
        fail(drive, run, "unknown")  # not one that the breaker counts
    drive.later(hours=2)
    plans = [sweeper.plan(), sweeper.plan()]
    granted: list[Run] = []
    failures: list[BaseException] = []

    def perform(plan: Plan) -> None:
        try:
            granted.extend(sweeper.perform(plan))
        except BaseException as error:  # noqa: BLE001 - a thread's error belongs to the test
            failures.append(error)

    threads = [threading.Thread(target=perform, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(granted) == len({r.item_id for r in granted}) == 20
    assert {drive.item(f"item-{i}").attempts for i in range(20)} == {1}


def test_an_old_decision_performed_again_days_later_keeps_cap_and_cooldown(drive, sweeper):
    """A person clears the refire task of an old sweep: its decisions are still in XCom."""
    one_failed(drive)
    drive.later(hours=2)
    plan = sweeper.plan()
    (run,) = sweeper.perform(plan)
    fail(drive, run)
    old = tuple(replace(d, epoch=drive.item("a").epoch) for d in plan.acting)
    assert sweeper.perform(replace(plan, acting=old)) == []
    assert drive.item("a").attempts == 1


def test_the_log_replays_to_the_row_after_recovery(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    sweeper.sweep()
    item = drive.item("a")
    with drive.ledger.read() as tx:
        assert replay(item.id, items.log_of(tx, item.id)) == item
        granted = items.log_of(tx, item.id, kinds=[EventKind.GRANTED])
    assert granted[-1].set["attempts"] == 1

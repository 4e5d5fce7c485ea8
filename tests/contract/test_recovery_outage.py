"""Many stuck items at once: caps and order of a sweep, and outages of hours and days."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import func, select, update

from airflow_relay.core.finding import RecoveryAction, RunLiveness
from airflow_relay.core.item import Run
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import EventKind, ItemState
from airflow_relay.ledger import dead_letters, items, recovering
from airflow_relay.ledger.dead_letters import LetterFilter
from airflow_relay.ledger.recovering import Heard, Scope
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.operations import actions
from support.pipelines import START, Driver
from support.sweeping import Sweeper, alert_texts, fail, letters, stuck


def test_of_two_thousand_stuck_items_a_sweep_refires_its_cap_highest_stage_and_oldest_first(drive, sweeper):
    stuck(drive, 2000)
    drive.later(hours=3)
    drive.conditions = Conditions(limits={"airflow.runs": 1000})
    plan = sweeper.plan()
    assert plan.counts == {RecoveryAction.REFIRE: 50, RecoveryAction.OVER_SWEEP_CAP: 1951}
    assert len(plan.acting) == 50
    granted = sweeper.perform(plan)
    assert [r.stage for r in granted] == ["third"] * 50
    with drive.ledger.read() as tx:
        keys = [items.by_id(tx, r.item_id).key for r in granted]
    assert keys == [f"item-{index}" for index in range(2, 152, 3)]


def test_after_an_outage_airflow_never_holds_more_than_its_limit(drive, sweeper):
    stuck(drive, 2000)
    drive.conditions = Conditions(limits={"airflow.runs": 30})
    for _ in range(4):
        drive.later(hours=3)
        sweeper.sweep()
        assert drive.usage()["airflow.runs"] <= 30
    with drive.ledger.read() as tx:
        charged = tx.conn.execute(
            select(func.count()).select_from(item_table).where(item_table.c.attempts > 0)
        ).scalar_one()
    assert charged == 30  # the others found no slot, so they paid nothing


def test_dead_letters_of_one_sweep_are_bounded_and_the_next_one_goes_on(drive, sweeper):
    stuck(drive, 300)
    with drive.ledger.write() as tx:
        tx.conn.execute(update(item_table).values(error_class="auth"))
    drive.later(hours=3)
    sweeper.sweep()
    assert len(letters(drive)) == 100  # a page of the listing
    with drive.ledger.read() as tx:
        assert sum(dead_letters.counts(tx).values()) == recovering.ACTS_LIMIT
    sweeper.sweep()
    with drive.ledger.read() as tx:
        assert sum(dead_letters.counts(tx).values()) == 301


def test_what_a_sweep_hands_on_by_xcom_stays_small_however_much_is_stuck(drive, sweeper):
    stuck(drive, 3000)
    with drive.ledger.write() as tx:
        dead = update(item_table).where(item_table.c.stage == "second")
        tx.conn.execute(dead.values(error_class="content_policy", error_reason="x" * 2000))
    drive.later(hours=3)
    plan = sweeper.plan()
    assert sum(plan.counts.values()) == 3001
    assert len(plan.acting) == 50 + recovering.ACTS_LIMIT
    assert len(json.dumps([decision.to_json() for decision in plan.acting])) < 128 * 1024


def test_one_stage_alone_can_be_served(drive, sweeper):
    stuck(drive, 30)
    drive.later(hours=3)
    plan = sweeper.plan(scope=Scope("line", "second"))
    assert {d.stage for d in plan.acting} == {"second"}
    assert len(plan.acting) == 10


def outage(
    drive: Driver, sweeper: Sweeper, keys: list[str], *, hours: int, error: str
) -> list[tuple[str, int]]:
    """Every call fails: a sweep every 2 h, a tick every 30 min. Returns (key, attempts) after each sweep."""
    seen: list[tuple[str, int]] = []
    pending = drive.intake(*keys)
    for half_hour in range(1, 2 * hours + 1):
        while pending:
            pending += fail(drive, pending.pop(), error)
        drive.later(minutes=30)
        pending += sweeper.sweep() if half_hour % 4 == 0 else drive.dispatch()
        seen += [drive.item(key).attempts for key in keys]
    while pending:
        pending += fail(drive, pending.pop(), error)
    return seen


def recoveries(drive: Driver, key: str) -> list[datetime]:
    item = drive.item(key)
    with drive.ledger.read() as tx:
        return [e.at for e in items.log_of(tx, item.id, kinds=[EventKind.RECOVERED])]


def run_to_the_end(drive: Driver, pending: list[Run]) -> None:
    while pending:
        pending += drive.serve(pending.pop())


@pytest.mark.parametrize(("error", "dead"), [("unknown", 12), ("server_error", 0)])
def test_an_outage_of_a_day_keeps_cap_and_cooldown_and_after_a_bulk_redrive_all_end(
    drive, sweeper, error, dead
):
    """Errors that the breaker counts cost nearly nothing: it holds the items back, and none of them dies."""
    keys = [f"item-{n:02}" for n in range(12)]
    drive.now = START.replace(hour=6)
    seen = outage(drive, sweeper, keys, hours=14, error=error)
    assert max(seen) <= 3
    for key in keys:
        at = recoveries(drive, key)
        assert all(later - earlier >= timedelta(hours=2) for earlier, later in pairwise(at))
    letters_of = letters(drive)
    assert len(letters_of) == dead
    assert sum("is in the dead letters" in said for said in alert_texts(drive)) == dead
    drive.later(hours=5)
    actions.redrive_letters(drive.ledger, LetterFilter(pipeline="line"), by="ada", now=drive.now)
    run_to_the_end(drive, drive.dispatch())
    for _ in range(3):
        drive.later(hours=2)
        run_to_the_end(drive, sweeper.sweep())
    assert {drive.item(key).state for key in keys} == {ItemState.DONE}


def test_a_weekend_without_airflow_costs_nobody_an_attempt(drive, sweeper):
    """Runs that were under way are alive for Airflow when it comes back: queued, or waiting in a trigger."""
    granted = drive.intake("running", "granted")
    drive.ledger.confirm([run.id for run in granted], drive.now)
    drive.guard(granted[0])
    drive.later(days=2.5)
    heard = {run.item_id: Heard(RunLiveness.ALIVE) for run in granted}
    assert sweeper.sweep(heard) == []
    assert {drive.item(key).attempts for key in ("running", "granted")} == {0}
    for run in granted:
        drive.guard(run)
        drive.end(run)
    assert {drive.item(key).stage for key in ("running", "granted")} == {"second"}

"""``airflow relay clean``: what goes, what stays, and that what stays still adds up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from airflow_relay.clock import utcnow
from airflow_relay.core.item import replay
from airflow_relay.core.states import EventKind, ItemState, RunResult
from airflow_relay.ledger import items, retention
from airflow_relay.ledger.schema import dead_letters, events, jobs, results, runs, slots
from airflow_relay.ledger.schema import items as item_table
from support.cli import relay
from support.pipelines import Driver, line


@pytest.fixture(autouse=True)
def its_ledger(ledger, monkeypatch):
    monkeypatch.setattr("airflow_relay.hooks.ledger.get_ledger", lambda: ledger)
    monkeypatch.setattr("airflow_relay.hooks.ledger.ledger_source", lambda: "the ledger of this test")
    return ledger


@pytest.fixture
def old_drive(ledger):
    """A line whose clock stands 100 days ago."""
    driver = Driver(ledger, line())
    driver.now = utcnow() - timedelta(days=100)
    return driver


def finish(drive, *keys):
    waiting = drive.intake(*keys)
    while waiting:
        waiting = [grant for run in waiting for grant in drive.serve(run)]


def clean(*argv):
    return relay("clean", "--before", "30d", "-o", "json", *argv).json


def kept_log(drive, key):
    item = drive.item(key)
    with drive.ledger.read() as tx:
        return item, items.log_of(tx, item.id)


def rows_of(ledger, table, item_id):
    with ledger.read() as tx:
        return tx.conn.execute(select(table).where(table.c.item_id == item_id)).all()


def test_a_long_finished_item_goes_with_all_that_belongs_to_it(old_drive, ledger):
    finish(old_drive, "old")
    item = old_drive.item("old")
    done = clean()
    assert (done["items"], done["snapshots"]) == (1, 0)
    assert done["events"] > 5
    assert relay("show", "old").code == 1
    for table in (events, runs, results, jobs, dead_letters):
        assert rows_of(ledger, table, item.id) == []


def test_what_was_finished_lately_and_what_is_not_finished_stays(old_drive):
    old_drive.intake("waits")
    dead = old_drive.intake("dead")[0]
    old_drive.ledger.confirm([dead.id], old_drive.now)
    old_drive.guard(dead)
    old_drive.end(dead, result=RunResult.FAILED, error="auth")
    old_drive.now = utcnow() - timedelta(days=1)
    finish(old_drive, "fresh")
    assert clean()["items"] == 0
    assert [old_drive.item(k).state for k in ("waits", "dead", "fresh")] == [
        ItemState.GRANTED,
        ItemState.DEAD,
        ItemState.DONE,
    ]


def test_the_log_of_an_item_that_stays_begins_with_a_snapshot_that_replays_to_its_row(old_drive):
    (run,) = old_drive.intake("slow")
    (second,) = old_drive.serve(run)
    old_drive.now = utcnow() - timedelta(days=1)
    old_drive.serve(second)
    item, before = kept_log(old_drive, "slow")
    done = clean()
    item_after, after = kept_log(old_drive, "slow")
    assert done["snapshots"] == 1
    assert done["events"] == len(before) - len(after) > 0
    assert after[0].kind is EventKind.SNAPSHOT
    assert item_after == item == replay(item.id, after)
    assert [e.id for e in after[1:]] == [e.id for e in before[-len(after) + 1 :]]


def test_cleaning_twice_is_cleaning_once(old_drive):
    (run,) = old_drive.intake("slow")
    old_drive.serve(run)
    finish(old_drive, "old")
    assert clean()["events"] > 0
    assert set(clean().values()) == {0}


def test_an_item_goes_on_after_its_log_was_shortened(old_drive):
    (run,) = old_drive.intake("slow")
    (second,) = old_drive.serve(run)
    clean()
    old_drive.now = utcnow()
    (third,) = old_drive.serve(second)
    old_drive.serve(third)
    item, log = kept_log(old_drive, "slow")
    assert item.state is ItemState.DONE
    assert replay(item.id, log) == item


def test_an_intake_still_knows_the_key_of_a_removed_item(old_drive, ledger):
    finish(old_drive, "old")
    clean()
    old_drive.now = utcnow()
    registered, granted = ledger.intake(
        old_drive.pipeline, ["old", "new"], old_drive.conditions, old_drive.now
    )
    assert (registered.new, registered.known) == (("new",), ("old",))
    assert len(granted) == 1


def test_a_person_may_start_the_key_of_a_removed_item_again(old_drive, ledger):
    finish(old_drive, "old")
    clean()
    assert ledger.register_one(old_drive.pipeline, "old", None, utcnow()) is True
    assert old_drive.item("old").state is ItemState.READY
    assert ledger.register_one(old_drive.pipeline, "old", None, utcnow()) is False


def test_forgotten_keys_are_new_again(old_drive, ledger):
    finish(old_drive, "old")
    clean()
    assert relay("clean", "--before", "1s", "--forget-keys", "-o", "json").json["keys"] in (0, 1)
    with ledger.write() as tx:
        retention.forget_keys(tx, utcnow() + timedelta(seconds=1))
    registered, _ = ledger.intake(old_drive.pipeline, ["old"], old_drive.conditions, utcnow())
    assert registered.new == ("old",)


def test_large_results_are_deleted_with_their_item(old_drive, ledger):
    (run,) = old_drive.intake("big")
    old_drive.ledger.confirm([run.id], old_drive.now)
    old_drive.guard(run)
    old_drive.end(run, value="x" * 100_000)
    assert len(ledger.objects.kept) == 1
    relay("discard", "big")
    with ledger.write() as tx:
        long_ago = utcnow() - timedelta(days=90)
        tx.conn.execute(item_table.update().values(last_activity_at=long_ago, finished_at=long_ago))
    assert clean()["objects"] == 1
    assert ledger.objects.kept == {}


def test_a_finished_item_with_a_run_that_still_holds_slots_is_waited_for(old_drive, ledger):
    finish(old_drive, "old")
    item = old_drive.item("old")
    with ledger.write() as tx:
        tx.conn.execute(runs.update().where(runs.c.item_id == item.id).values(state="open"))
    assert clean()["items"] == 0
    with ledger.read() as tx:
        assert tx.conn.execute(select(slots)).all() == []


def test_a_dry_run_counts_and_removes_nothing(old_drive):
    finish(old_drive, "old", "older")
    assert clean("--dry-run")["items_to_remove"] == 2
    assert old_drive.item("old").state is ItemState.DONE


def test_many_items_go_in_batches_each_a_transaction(old_drive, ledger, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 3)
    finish(old_drive, *(f"old{n}" for n in range(7)))
    (*_, _last) = old_drive.intake("a", "b", "c", "d")
    sizes = []
    real = retention.remove_finished

    def spy(tx, before, now, *, after=0):
        done = real(tx, before, now, after=after)
        sizes.append(done.items)
        return done

    monkeypatch.setattr(retention, "remove_finished", spy)
    done = clean()
    assert done["items"] == 7
    assert sizes == [3, 3, 1, 0]


def test_a_time_in_the_future_is_refused(ledger):
    answer = relay("clean", "--before", "2999-01-01")
    assert answer.code == 2
    assert "future" in answer.err

"""The invariants of the ledger (DESIGN 9), each by its number, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import select

from airflow_relay.core.errors import ErrorClass
from airflow_relay.core.item import replay
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, RunResult, RunState
from airflow_relay.ledger import items, runs, schema
from airflow_relay.ledger.errors import BadItemError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.trigger import conf_of
from support.pipelines import START, Driver, line


def test_1_a_registered_item_is_in_one_state_and_something_moves_it_on(drive: Driver) -> None:
    [run] = drive.intake("a")
    seen = [drive.item("a").state]
    drive.guard(run)
    seen.append(drive.item("a").state)
    drive.end(run, result=RunResult.FAILED, error=ErrorClass.NETWORK.value)
    seen.append(drive.item("a").state)
    assert seen == [ItemState.GRANTED, ItemState.RUNNING, ItemState.FAILED]


def test_1_an_error_that_no_retry_helps_goes_to_a_person_with_its_trail(drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error=ErrorClass.CONTENT_POLICY.value)
    assert drive.item("a").state is ItemState.DEAD
    with drive.ledger.read() as tx:
        [letter] = tx.conn.execute(select(schema.dead_letters)).all()
        [alert] = tx.conn.execute(select(schema.alerts)).all()
    assert letter.error_class == "content_policy"
    assert "dead letters at first" in alert.text


def test_2_a_stage_is_handed_off_once_per_epoch(drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    first = drive.end(run)
    second = drive.end(run)
    assert [g.stage for g in first.grants] == ["second"]
    assert second.closed.already
    assert second.grants == ()
    assert drive.item("a").epoch == 2


def test_2_a_late_second_delivery_is_skipped(drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.serve(run)
    assert drive.guard(run).decision.action.value == "skip_closed"


def test_2_a_grant_is_sent_again_until_it_is_confirmed_and_keeps_its_run_id(drive: Driver) -> None:
    [run] = drive.intake("a")
    assert drive.ledger.unconfirmed(drive.now) == [], "the sender has its time"
    [again] = drive.ledger.unconfirmed(drive.later(minutes=2))
    assert again.run_id == run.run_id
    assert drive.ledger.unconfirmed(drive.now) == [], "one sender at a time"
    drive.ledger.confirm([run.id], drive.now)
    assert drive.ledger.unconfirmed(drive.later(hours=1)) == []


def test_2_registering_a_key_twice_gives_one_item(drive: Driver) -> None:
    drive.intake("a", "a", "b")
    registered, _ = drive.ledger.intake(drive.pipeline, ["a", "c"], drive.conditions, drive.now)
    assert registered.new == ("c",)
    assert registered.known == ("a",)


def test_3_a_superseded_run_moves_nothing_and_frees_its_own_slots(drive: Driver) -> None:
    [old] = drive.intake("a")
    [second] = drive.serve(old)
    drive.guard(second)
    rewound = drive.guard(old, clear_number=1)
    assert rewound.decision.action.value == "rewind"
    assert drive.run(second).state is RunState.SUPERSEDED
    assert drive.guard(second).decision.action.value == "skip_superseded"
    before = drive.item("a")
    assert drive.end(second).grants == ()
    assert drive.item("a") == before
    assert drive.usage() == {"airflow.runs": 1, "line.first": 1}


def test_4_slots_in_use_never_exceed_the_limit_and_a_lowered_one_drains(ledger: Ledger) -> None:
    drive = Driver(ledger, line(first=3))
    granted = drive.intake("a", "b", "c", "d", "e")
    assert len(granted) == 3
    drive.conditions = Conditions(limits={"line.first": 1})
    assert drive.dispatch() == []
    for run in granted[:2]:
        assert [g.stage for g in drive.serve(run)] == ["second"]
    assert [g.stage for g in drive.serve(granted[2])] == ["first", "second"] or drive.usage()[
        "line.first"
    ] == 1


def test_5_replaying_the_log_gives_the_row(drive_loop: Driver) -> None:
    drive = drive_loop
    [run] = drive.intake("a")
    for outcome in (None, "again", None, "again", None, "again"):
        [run] = drive.serve(run, outcome)
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error=ErrorClass.TIMEOUT.value)
    item = drive.item("a")
    with drive.ledger.read() as tx:
        assert replay(item.id, items.log_of(tx, item.id)) == item


def test_6_times_are_utc_on_write_and_aware_on_read(ledger: Ledger) -> None:
    east = timezone(timedelta(hours=9))
    drive = Driver(ledger, line())
    drive.now = datetime(2026, 3, 2, 18, tzinfo=east)
    drive.intake("a")
    item = drive.item("a")
    assert item.registered_at == START
    assert item.registered_at.utcoffset() == timedelta(0)
    with pytest.raises(Exception, match="no timezone"):
        ledger.intake(drive.pipeline, ["b"], drive.conditions, datetime(2026, 3, 2))  # noqa: DTZ001 - on purpose


def test_7_conf_holds_ids_only(drive: Driver) -> None:
    registered = {"key": "a", "payload": {"token": "s3cret"}}
    _, [run] = drive.ledger.intake(drive.pipeline, [registered], drive.conditions, drive.now)
    conf = conf_of(run, "a")
    assert set(conf) == {"item_id", "epoch", "ledger"}
    assert "s3cret" not in json.dumps(conf)
    assert all("s3cret" not in line for line in drive.log("a"))


def test_8_after_a_completion_no_admissible_item_waits_beside_free_capacity(ledger: Ledger) -> None:
    drive = Driver(ledger, line(first=1, second=1))
    [run] = drive.intake("a", "b", "c")
    grants = drive.serve(run)
    assert sorted((g.stage, g.item_id) for g in grants) == [("first", 2), ("second", 1)]
    assert drive.dispatch() == []


def test_two_items_never_share_a_run_id(drive: Driver) -> None:
    keys = ["a/b", "a-b", "a b", "ä", "x" * 200, "x" * 199 + "y", "..", ".", "a~b", "A/b", "日本", "a__b"]
    granted = drive.intake(*keys)
    ids = [g.run_id for g in granted]
    assert len(set(ids)) == len(keys)
    assert all(len(i) <= 250 and ".." not in i for i in ids)


@pytest.mark.parametrize(
    "key",
    [
        "a\nb\tc",
        "  ",
        "\u3000全角 空白\u00a0",
        "👩\u200d💻",
        "%(x)s 100 %",
        "../../etc",
        "'; --",
        "\x1b[31m",
        "é" * 200,
    ],
)
def test_any_other_key_is_kept_as_given_and_goes_all_the_way(drive: Driver, key: str) -> None:
    [run] = drive.intake(key)
    assert drive.item(key).key == key
    while run is not None:
        run = next(iter(drive.serve(run)), None)
    assert drive.item(key).state is ItemState.DONE
    assert drive.intake(key) == []


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 1.5, True, "1", None])
def test_a_bad_priority_is_refused_and_nothing_is_registered(drive: Driver, priority: object) -> None:
    with pytest.raises(BadItemError, match="priority="):
        drive.ledger.intake(drive.pipeline, [{"key": "a", "priority": priority}], drive.conditions, drive.now)
    with drive.ledger.read() as tx:
        assert items.listing(tx) == []


@pytest.mark.parametrize("returned", [None, "one key", b"x", {"key": "a"}, 7])
def test_an_intake_that_returns_no_list_is_told_so(drive: Driver, returned: object) -> None:
    """A text would be one item a letter, and a mapping one a field."""
    with pytest.raises(BadItemError, match="return a list of items"):
        drive.ledger.intake(drive.pipeline, returned, drive.conditions, drive.now)  # type: ignore[arg-type]
    with drive.ledger.read() as tx:
        assert items.listing(tx) == []


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x00b", "a\ud800b", 7])
def test_a_bad_key_is_refused_and_nothing_is_registered(drive: Driver, key: object) -> None:
    with pytest.raises(BadItemError, match="key="):
        drive.ledger.intake(drive.pipeline, ["good", {"key": key}], drive.conditions, drive.now)
    with drive.ledger.read() as tx:
        assert items.listing(tx) == []


def test_a_large_result_goes_to_the_object_store_and_comes_back(drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    drive.end(run, value={"text": "x" * 100_000})
    with drive.ledger.read() as tx:
        [row] = tx.conn.execute(select(schema.results).where(schema.results.c.stage == "first")).all()
    assert row.value is None
    assert json.loads(drive.ledger.objects.read(row.ref)) == {"text": "x" * 100_000}


def test_a_withdrawn_grant_waits_again_and_its_run_is_superseded(drive: Driver) -> None:
    from airflow_relay.ledger import closing

    [run] = drive.intake("a")
    with drive.ledger.dispatcher() as tx:
        assert closing.withdraw(tx, run.id, pipeline=drive.pipeline, why="paused", now=drive.now)
        assert not closing.withdraw(tx, run.id, pipeline=drive.pipeline, why="paused", now=drive.now)
    assert drive.item("a").state is ItemState.READY
    assert drive.guard(run).decision.action.value == "skip_superseded"
    [new] = drive.dispatch()
    assert new.epoch == 2
    assert timedelta(0) < runs.RESEND_AFTER

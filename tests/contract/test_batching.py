"""Writes that go along with the next statement: in their order, unchanged, all or none. Both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from airflow_relay.core.completion import Completion
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import closing
from airflow_relay.ledger.schema import DISPATCHER_LOCK, meta
from airflow_relay.ledger.store import HandedOff, Ledger
from support.pipelines import Driver


@pytest.fixture(autouse=True)
def _clean(ledger: Ledger) -> Iterator[None]:
    """The table of identities is the one that is not emptied between tests."""
    yield
    with ledger.write() as tx:
        tx.conn.execute(delete(meta).where(meta.c.name.not_in(["ledger_id", DISPATCHER_LOCK])))


def value(ledger: Ledger, name: str) -> str | None:
    with ledger.read() as tx:
        found: str | None = tx.conn.execute(select(meta.c.value).where(meta.c.name == name)).scalar()
        return found


def test_a_read_sees_the_writes_before_it_in_their_order(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.write(insert(meta), [{"name": "a", "value": "1"}, {"name": "b", "value": "1"}])
        tx.write(update(meta).where(meta.c.name == "a").values(value="2"))
        tx.write(update(meta).where(meta.c.name == "a").values(value=meta.c.value + "!"))
        found = dict(tx.conn.execute(select(meta.c.name, meta.c.value)).all())
    assert (found["a"], found["b"]) == ("2!", "1")


@pytest.mark.parametrize("said", ["100 % of %(it)s", "a'; DROP TABLE meta; --", "Füße\\n\n%%", ""])
def test_values_arrive_unchanged_at_the_end_of_the_transaction(ledger: Ledger, said: str) -> None:
    name = f"text {said!r}"
    with ledger.write() as tx:
        tx.write(insert(meta), {"name": name, "value": said})
    assert value(ledger, name) == said


def test_an_error_of_a_write_rolls_everything_back_and_leaves_nothing_behind(ledger: Ledger) -> None:
    def write_twice() -> None:
        with ledger.write() as tx:
            tx.write(insert(meta), {"name": "first", "value": "1"})
            tx.write(insert(meta), {"name": "ledger_id", "value": "a second identity"})

    with pytest.raises(IntegrityError):
        write_twice()
    with ledger.write() as tx:
        tx.write(insert(meta), {"name": "next", "value": "1"})
    assert (value(ledger, "first"), value(ledger, "next")) == (None, "1")


def test_what_an_interrupted_transaction_has_kept_is_never_sent(ledger: Ledger) -> None:
    def begin_only() -> None:
        with ledger.write() as tx:
            tx.write(insert(meta), {"name": "kept", "value": "1"})
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        begin_only()
    with ledger.write() as tx:
        assert tx.conn.execute(select(meta.c.name).where(meta.c.name == "kept")).scalar() is None
    assert value(ledger, "kept") is None


def wait_until_it_waits(ledger: Ledger, hand_off: Future[HandedOff]) -> None:
    """Return when the server says that another transaction of this database waits."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while not hand_off.done():
        with ledger.read() as tx:
            if tx.conn.execute(waiting).scalar_one():
                return


def test_a_hand_off_that_waited_for_the_lock_sees_what_its_holder_did(drive: Driver) -> None:
    [run] = drive.intake("a")
    ledger = drive.ledger
    with ThreadPoolExecutor(1) as pool:
        with ledger.dispatcher() as tx:
            hand_off = pool.submit(drive.end, run)
            if not tx.is_sqlite:
                wait_until_it_waits(ledger, hand_off)
                assert not hand_off.done()
            closing.close_run(
                tx,
                run.id,
                pipeline=drive.pipeline,
                completion=Completion(RunResult.FAILED, error_class="timeout"),
                stored=None,
                clear_number=None,
                now=drive.now,
            )
        # It comes with a success, which amends the failure that the holder has recorded meanwhile.
        closed = hand_off.result().closed
    assert closed.run.result is RunResult.FAILED
    assert closed.current
    assert drive.item("a").stage == "second"

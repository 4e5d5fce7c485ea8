"""Writes that go along with the next statement: in their order, unchanged, all or none. Both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from airflow_relay.ledger.schema import DISPATCHER_LOCK, meta
from airflow_relay.ledger.store import Ledger


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


@pytest.mark.parametrize("text", ["100 % of %(it)s", "a'; DROP TABLE meta; --", "Füße\\n\n%%", ""])
def test_values_arrive_unchanged_at_the_end_of_the_transaction(ledger: Ledger, text: str) -> None:
    name = f"text {text!r}"
    with ledger.write() as tx:
        tx.write(insert(meta), {"name": name, "value": text})
    assert value(ledger, name) == text


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

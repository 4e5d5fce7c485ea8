"""Items and their log: one function writes both, so that they never disagree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, bindparam, insert, select, update
from sqlalchemy.exc import NoResultFound

from airflow_relay.core import item as values
from airflow_relay.core.item import Change, Event, Item
from airflow_relay.core.states import EventKind, ItemState
from airflow_relay.ledger import codec
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import UnknownItemError
from airflow_relay.ledger.schema import events, items

_CHANGE: Final = update(items).where(items.c.id == bindparam("of_item"))
_LOG: Final = insert(events).inline()
_LOCK: Final = (
    select(items)
    .where(items.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(items.c.id)
    .with_for_update()
)


def create(tx: Tx, item: Item, change: Change) -> Item:
    """Write a new item and its registration."""
    row = {
        **{f: getattr(item, f) for f in (c.name for c in items.columns) if f != "id"},
        "keys": list(item.keys),
    }
    item_id = tx.conn.execute(insert(items).values(**row).returning(items.c.id)).scalar_one()
    created = replace(item, id=item_id)
    log(tx, created, change)
    return created


def perform(tx: Tx, item: Item, change: Change) -> Item:
    """Apply a change to the row and append the event that tells it, in the caller's transaction."""
    after = values.apply(item, change)
    row = {**change.set, "last_activity_at": change.at}
    if "keys" in row:
        row["keys"] = list(row["keys"])
    tx.write(_CHANGE, {"of_item": item.id, **row})
    log(tx, after, change)
    return after


def log(tx: Tx, item: Item, change: Change) -> None:
    """Append an event."""
    tx.write(_LOG, event_row(item, change))


def event_row(item: Item, change: Change) -> dict[str, Any]:
    """The row of ``events`` for a change; ``item`` is the item after it."""
    return {
        "item_id": item.id,
        "at": change.at,
        "kind": change.kind,
        "text": change.text,
        "set": codec.encode_fields(change.set),
        "detail": dict(change.detail),
        "epoch": item.epoch,
        "run": change.run,
    }


def locked(tx: Tx, item_id: int) -> Item:
    """The item, its row locked against other writers until the transaction ends."""
    return locked_all(tx, [item_id])[item_id]


def locked_all(tx: Tx, ids: Sequence[int]) -> dict[int, Item]:
    """Item id → item, all of them locked as by :func:`locked`, in the order of their ids."""
    found = {i.id: i for i in map(codec.item_from, tx.conn.execute(_LOCK, {"ids": list(ids)}))}
    missing = set(ids) - found.keys()
    if missing:
        raise NoResultFound(f"No item has the id {min(missing)}.")
    return found


def by_id(tx: Tx, item_id: int) -> Item:
    return codec.item_from(tx.conn.execute(select(items).where(items.c.id == item_id)).one())


def by_ids(tx: Tx, ids: Collection[int]) -> list[Item]:
    """Those of the items that exist, by id."""
    query = select(items).where(items.c.id.in_(list(ids))).order_by(items.c.id)
    return [codec.item_from(r) for r in tx.conn.execute(query)]


def find(tx: Tx, key: str, pipeline: str | None = None) -> Item:
    """The item with this key, in one pipeline or in whichever has it.

    :raises UnknownItemError: no item, or items of several pipelines, have the key.
    """
    query = select(items).where(items.c.key == key)
    if pipeline is not None:
        query = query.where(items.c.pipeline == pipeline)
    found = [codec.item_from(r) for r in tx.conn.execute(query.limit(10))]
    if not found:
        where = f" in pipeline {pipeline!r}" if pipeline else ""
        raise UnknownItemError(f"No item has the key {key!r}{where}. `airflow relay items` lists them.")
    if len(found) > 1:
        names = ", ".join(i.pipeline for i in found)
        raise UnknownItemError(f"Pipelines {names} each have an item {key!r}: name one with --pipeline.")
    return found[0]


def listing(
    tx: Tx,
    *,
    pipeline: str | None = None,
    states: Collection[ItemState] = (),
    stage: str | None = None,
    limit: int = 1000,
) -> list[Item]:
    """Items, the latest activity first."""
    query: Select[Any] = (
        select(items).order_by(items.c.last_activity_at.desc(), items.c.id.desc()).limit(limit)
    )
    if pipeline is not None:
        query = query.where(items.c.pipeline == pipeline)
    if states:
        query = query.where(items.c.state.in_(list(states)))
    if stage is not None:
        query = query.where(items.c.stage == stage)
    return [codec.item_from(r) for r in tx.conn.execute(query)]


_LOG_OF: Final = select(events).where(events.c.item_id == bindparam("of_item")).order_by(events.c.id)
_LOG_OF_KINDS: Final = _LOG_OF.where(events.c.kind.in_(bindparam("kinds", expanding=True)))


def log_of(tx: Tx, item_id: int, *, kinds: Collection[EventKind] = ()) -> list[Event]:
    """The item's activity, oldest first."""
    query = _LOG_OF_KINDS if kinds else _LOG_OF
    found = tx.conn.execute(query, {"of_item": item_id, **({"kinds": list(kinds)} if kinds else {})})
    return [codec.event_from(r) for r in found]


def first_activity(tx: Tx) -> datetime | None:
    """The oldest line of any log; ``None`` in an empty ledger."""
    return tx.conn.execute(select(events.c.at).order_by(events.c.at).limit(1)).scalar()


def known_keys(tx: Tx, pipeline: str, keys: Iterable[str]) -> Mapping[str, int]:
    """Key → item id of those keys that the pipeline has already."""
    wanted = list(keys)
    found: dict[str, int] = {}
    for start in range(0, len(wanted), 500):
        batch = wanted[start : start + 500]
        rows = tx.conn.execute(
            select(items.c.key, items.c.id).where(items.c.pipeline == pipeline, items.c.key.in_(batch))
        )
        found.update({r.key: r.id for r in rows})
    return found


def note(tx: Tx, item: Item, text: str, now: datetime, **detail: Any) -> Item:
    """A line that changes nothing but the time of the last activity."""
    return perform(tx, item, Change(kind=EventKind.NOTE, at=now, text=text, detail=detail))

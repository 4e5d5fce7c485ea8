"""Stage results and item payloads: small ones in the ledger, large ones as objects beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import bindparam, delete, func, insert, select

from airflow_relay.core.naming import slug
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import BadItemError
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import results
from airflow_relay.ledger.types import dump

INLINE_LIMIT: Final = 64 * 1024
"""Bytes of JSON that stay in the ledger."""

PAYLOAD: Final = ""
"""The stage name under which an item's payload is kept."""


class ObjectStore(Protocol):
    """Where large values go; the Airflow ring gives one on an ObjectStoragePath."""

    def write(self, name: str, data: bytes) -> str:
        """Store ``data`` and return the reference to read it by."""

    def read(self, ref: str) -> bytes:
        """Return what was stored under ``ref``."""

    def delete(self, ref: str) -> None:
        """Remove what was stored under ``ref``, if it is there."""


@dataclass(frozen=True)
class Stored:
    """A value ready to be written: made before the transaction, so that no upload happens inside one."""

    value: Any
    ref: str | None
    size: int


def prepare(value: Any, *, objects: ObjectStore, pipeline: str, key: str, what: str) -> Stored:
    """Encode a value; one above :data:`INLINE_LIMIT` is uploaded now and only its reference stays.

    :raises BadItemError: the value is not JSON.
    """
    try:
        data = dump(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadItemError(f"{what} of item {key!r} is not JSON: {error}. Return plain values.") from error
    if len(data) <= INLINE_LIMIT:
        return Stored(value=value, ref=None, size=len(data))
    name = f"{pipeline}/{slug(key)}/{slug(what)}.json"
    return Stored(value=None, ref=objects.write(name, data), size=len(data))


_REMOVE: Final = delete(results).where(
    results.c.item_id == bindparam("of_item"),
    results.c.stage == bindparam("of_stage"),
    results.c.visit == bindparam("of_visit"),
)
_PUT: Final = insert(results).inline()


def put(
    tx: Tx,
    item_id: int,
    *,
    stage: str,
    visit: int,
    stored: Stored,
    now: datetime,
    outcome: str | None = None,
) -> None:
    """Write or replace the result of a stage visit."""
    # A new row and no changed one: the id says which result is the newest.
    tx.write(_REMOVE, {"of_item": item_id, "of_stage": stage, "of_visit": visit})
    row = {
        "item_id": item_id,
        "stage": stage,
        "visit": visit,
        "outcome": outcome,
        "value": stored.value,
        "ref": stored.ref,
        "size": stored.size,
        "at": now,
    }
    tx.write(_PUT, row)


@dataclass(frozen=True)
class Result:
    """A stage's result; ``value`` is ``None`` and ``ref`` set while a large one has not been fetched."""

    stage: str
    visit: int
    outcome: str | None
    value: Any
    ref: str | None
    size: int
    at: datetime


def of_item(tx: Tx, item_id: int) -> list[Result]:
    """Payload and results, oldest first."""
    rows = tx.conn.execute(select(results).where(results.c.item_id == item_id).order_by(results.c.id))
    return [Result(r.stage, r.visit, r.outcome, r.value, r.ref, r.size, r.at) for r in rows]


def latest(found: list[Result], objects: ObjectStore) -> Mapping[str, Any]:
    """Stage → value of its latest visit, large ones fetched; the payload under :data:`PAYLOAD`."""
    by_stage = {r.stage: r for r in sorted(found, key=lambda r: r.visit)}
    return {stage: value_of(result, objects) for stage, result in by_stage.items()}


def value_of(result: Result, objects: ObjectStore) -> Any:
    """The value, fetched when it is a large one."""
    return result.value if result.ref is None else json.loads(objects.read(result.ref))


def of_others(
    tx: Tx, *, pipeline: str, stage: str, passed: str, outcome: str | None, but: int, limit: int = 200
) -> list[tuple[str, Result]]:
    """(key, latest result of ``stage``) of the other items of a pipeline that have passed a stage.

    :param passed: the stage that they must have a result of, with ``outcome`` unless it is ``None``.
    :param but: the item id to leave out.
    :param limit: of items, those that passed last.
    """
    query = (
        select(results.c.item_id, item_table.c.key, func.max(results.c.id).label("latest"))
        .join(item_table, item_table.c.id == results.c.item_id)
        .where(item_table.c.pipeline == pipeline, results.c.stage == passed, results.c.item_id != but)
        .group_by(results.c.item_id, item_table.c.key)
        .order_by(func.max(results.c.id).desc())
        .limit(limit)
    )
    if outcome is not None:
        query = query.where(results.c.outcome == outcome)
    found = []
    for row in tx.conn.execute(query).all():
        of_stage = [r for r in of_item(tx, row.item_id) if r.stage == stage]
        if of_stage:
            found.append((row.key, max(of_stage, key=lambda r: r.visit)))
    return found

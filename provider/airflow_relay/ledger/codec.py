"""Between rows and the values of the core: items, runs, events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final

from sqlalchemy import Row

from airflow_relay.core.item import Event, Item, Run
from airflow_relay.core.states import ItemState, PriorityClass
from airflow_relay.ledger import schema
from airflow_relay.ledger.types import from_micros, to_micros

_ITEM_COLUMNS: Final = tuple(c.name for c in schema.items.columns)
_RUN_COLUMNS: Final = tuple(c.name for c in schema.runs.columns)
_INSTANTS: Final = frozenset(
    c.name for c in schema.items.columns if isinstance(c.type, type(schema.items.c.registered_at.type))
)
_ENUMS: Final[Mapping[str, type[Enum]]] = {"state": ItemState, "klass": PriorityClass}


def item_from(row: Row[Any] | Mapping[str, Any]) -> Item:
    """An item from a row that has the columns of ``items``."""
    values = row._mapping if isinstance(row, Row) else row  # noqa: SLF001 - SQLAlchemy's public accessor
    data = {name: values[name] for name in _ITEM_COLUMNS}
    return Item(**{**data, "keys": tuple(data["keys"])})


def run_from(row: Row[Any] | Mapping[str, Any]) -> Run:
    """A run from a row that has the columns of ``runs``."""
    values = row._mapping if isinstance(row, Row) else row  # noqa: SLF001 - SQLAlchemy's public accessor
    return Run(**{name: values[name] for name in _RUN_COLUMNS})


def event_from(row: Row[Any]) -> Event:
    """A line of the log, its item fields decoded."""
    return Event(
        id=row.id,
        item_id=row.item_id,
        at=row.at,
        kind=row.kind,
        text=row.text,
        set=decode_fields(row.set),
        detail=row.detail,
        epoch=row.epoch,
        run=row.run,
    )


def encode_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Item fields as JSON: instants as microseconds, Enums by value."""
    return {name: _encode(value) for name, value in values.items()}


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value


def decode_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`encode_fields`, by field name."""
    return {name: _decode(name, value) for name, value in values.items()}


def _decode(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _INSTANTS:
        return from_micros(value)
    if name in _ENUMS:
        return _ENUMS[name](value)
    return tuple(value) if name == "keys" else value

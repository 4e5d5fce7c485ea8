"""Column types that make both databases store and return the same Python values."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

from sqlalchemy import BigInteger, Dialect, String, Text, TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(value: datetime) -> int:
    """Microseconds since 1970 UTC.

    :raises ValueError: the time is naive: nobody could say which instant is meant.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no timezone: Relay stores instants, pass an aware datetime.")
    return (value - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """The inverse of :func:`to_micros`: an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=value)


class Instant(TypeDecorator[datetime]):
    """An instant as microseconds since 1970 UTC: aware on read, the same arithmetic on both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else from_micros(value)


class Json(TypeDecorator[Any]):
    """JSON as text with sorted keys: comparable, groupable and the same on both databases."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else dump(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else json.loads(value)


def dump(value: Any) -> str:
    """Compact JSON with sorted keys; NaN is refused, since PostgreSQL and browsers refuse it later."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class EnumText(TypeDecorator[Enum]):
    """A string Enum by its value."""

    impl = String(32)
    cache_ok = True

    def __init__(self, enum: type[Enum]) -> None:
        super().__init__()
        self._enum = enum
        self._members = {member.value: member for member in enum}

    @property
    def enum(self) -> type[Enum]:
        return self._enum

    def process_bind_param(self, value: Enum | str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else str(self._enum(value).value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Enum | None:  # noqa: ARG002
        if value is None:
            return None
        return self._members.get(value) or self._enum(value)

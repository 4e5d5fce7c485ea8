"""Times and spans as people type them."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST: Final = timedelta(days=36_525)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])")


def parse_span(text: str) -> timedelta:
    """``90s``, ``20m``, ``3h``, ``1h30m``, ``7d``, ``2w``.

    :raises argparse.ArgumentTypeError: it is none of these, or not positive.
    """
    compact = text.strip().lower()
    parts = _PART.findall(compact)
    if not parts or _PART.sub("", compact).strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no span: write 90s, 20m, 3h, 1h30m or 7d")
    try:
        total = sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is too long") from error
    if total > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is too long")
    if total <= timedelta():
        raise argparse.ArgumentTypeError(f"{text!r} is not positive")
    return total


def parse_moment(text: str, now: datetime) -> datetime:
    """An ISO time (UTC without an offset), ``09:00`` for today in UTC, or a span for so long ago.

    :raises ValueError: it is none of these; the text says what to write.
    """
    clean = text.strip()
    if re.fullmatch(r"\d{1,2}:\d{2}", clean):
        hour, minute = map(int, clean.split(":"))
        if hour > 23 or minute > 59:
            raise ValueError(f"{text!r} is no time of day.")
        return now.astimezone(timezone.utc).replace(hour=hour, minute=minute, second=0, microsecond=0)
    try:
        if _PART.match(clean.lower()) and not _PART.sub("", clean.lower()):
            return now - parse_span(clean)
        moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", clean))
        return (
            moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
        )
    except (ValueError, OverflowError, argparse.ArgumentTypeError) as error:
        raise ValueError(
            f"{text!r} is no time: write 2026-08-01T06:00Z, 2026-08-01, 09:00 (today, UTC) or 2h (ago)."
        ) from error

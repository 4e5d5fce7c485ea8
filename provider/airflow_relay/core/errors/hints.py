"""How long the server asks to wait: headers, fields and words, in seconds from the moment of its answer."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from airflow_relay.core.errors.evidence import Evidence

MAX_HINT = 32 * 86400.0
"""Seconds; a longer wait (a date read as a number, a year) is no hint but a mistake."""

_UNITS = {
    "milliseconds": 0.001, "millisecond": 0.001, "millis": 0.001, "msecs": 0.001, "msec": 0.001, "ms": 0.001,
    "毫秒": 0.001,
    "microseconds": 1e-6, "µs": 1e-6, "us": 1e-6, "ns": 1e-9,
    "seconds": 1, "second": 1, "secs": 1, "sec": 1, "s": 1, "秒钟": 1, "秒": 1,
    "minutes": 60, "minute": 60, "mins": 60, "min": 60, "m": 60, "分钟": 60, "分": 60,
    "hours": 3600, "hour": 3600, "hrs": 3600, "hr": 3600, "h": 3600, "小时": 3600,
    "days": 86400, "day": 86400, "d": 86400, "天": 86400,
}  # fmt: skip
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_PART = rf"{_NUMBER}\s?(?:{_UNIT})(?![a-z])|{_NUMBER}(?:{_UNIT})(?=\d)"
_DURATION = rf"(?:(?:{_PART})[\s,]{{0,3}}(?:and\s)?){{1,5}}"
_SPLIT = re.compile(rf"(\d{{1,12}}(?:\.\d{{1,12}})?)\s?({_UNIT})")
_WHOLE = re.compile(rf"^{_DURATION}$")
_CLOCK = re.compile(r"^(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.\d+)?$")
_LEAD = (
    r"(?:try(?:ing)?(?:\sit|\syour\srequest|\sthis)?\sagain|\bretry(?:[ _-]?(?:after|delay|in))?"
    r"|\bwait(?:ing)?|\bresets?|reset[ _-](?:after|in|at)"
    r"|available(?:\sagain)?|resume|come\sback|refresh(?:es|ed)?|renews?|back\soff|resubmit|unblocked"
    r"|lifted|replenished|cool\s?down|expected\sto\sbe\sready)"
)
_BRIDGE = (
    r"(?:[\s:=(\"'~]{1,3}(?:again|in|after|for|within|at|least|about|approximately|approx|around|another|the"
    r"|next|is|it|your|request|requests"
    r"|will|be|a|further|period|time|delay|seconds|of|limit|please|or|up|to)\b\.?){0,6}[\s:=(\"'~]{0,3}"
)
_SPOKEN = re.compile(rf"{_LEAD}{_BRIDGE}({_DURATION})")
_SPOKEN_CLOCK = re.compile(rf"{_LEAD}{_BRIDGE}(\d{{1,3}}:[0-5]\d:[0-5]\d)\b")
_BARE = re.compile(
    r"\bretry[ _-]?after(?:[ _-]?(?:s|sec|seconds))?[\s\"']{0,2}[:=]?[\s\"']{0,2}"
    r"(\d{1,7}(?:\.\d{1,9})?)(?![\d:/.-]|\s?[a-z])"
)
_BARE_MS = re.compile(
    r"\bretry[ _-]?after[ _-]?(?:ms|millis|milliseconds)[\s\"']{0,2}[:=]?[\s\"']{0,2}(\d{1,10}(?:\.\d{1,9})?)"
)
_BEFORE = re.compile(rf"({_DURATION})\s?(?:后|之后|以后)|\bwait\s({_DURATION})")
_ONE = re.compile(r"\b(?:in|after|wait(?:\sfor)?)\s(?:a|an|one)\s(minute|second|hour)\b")

_HEADERS_MS = ("retry-after-ms", "x-ms-retry-after-ms", "x-retry-after-ms", "x-amzn-retry-after-ms")
_HEADERS = (
    "retry-after",
    "x-retry-after",
    "x-amzn-retry-after",
    "x-ratelimit-retry-after",
    "x-rate-limit-retry-after",
)


def wait_hint(found: Evidence, *, now: datetime | None, limited: bool) -> float | None:
    """Seconds to wait, or None when the reply gives no usable hint.

    `now` is used where the reply has a date but no Date header. `limited`: the failure is one of limits, so
    the buckets' reset headers (which every reply carries) speak of it. Zero and positive values up to
    `MAX_HINT` are taken; negative, NaN and absurd ones are refused and the next source is asked.
    """
    moment = _http_date(found.headers.get("date", "")) or now
    sources = [
        *(_scaled(found.headers.get(name), 0.001) for name in _HEADERS_MS),
        *(_seconds(found.headers.get(name), moment) for name in _HEADERS),
        *(_field_seconds(key, value, moment) for key, value in found.hints if not _MOMENT_FIELD.search(key)),
        _text_seconds(found.prose()),
        *(_field_seconds(key, value, moment) for key, value in found.hints if _MOMENT_FIELD.search(key)),
    ]
    if limited:
        sources.append(_bucket_seconds(found.headers, moment))
    return next((value for value in map(_usable, sources) if value is not None), None)


_MOMENT_FIELD = re.compile(r"(?:reset|resets|reset_time|_at|until)$|_at$")
_WAITED_FIELD = re.compile(
    r"total|elapsed|max|timeout|attempt|wait_?time_?out|should|policy|wait_timeout|config|waited|enabled"
)


def _field_seconds(key: str, value: Any, moment: datetime | None) -> float | None:
    """A field of a body. `totalRetryDelay` and the like are time that was waited already."""
    if _WAITED_FIELD.search(key) or isinstance(value, bool):
        return None
    if isinstance(value, (int, float)) or (isinstance(value, str) and _is_number(value)):
        number = float(value)
        if re.search(r"(?:_ms|_?millis(?:econds)?)$", key):
            return number / 1000
        if re.search(r"_min(?:ute)?s?$", key):
            return number * 60
        return _number_seconds(number, moment, absolute=_MOMENT_FIELD.search(key) is not None)
    return _seconds(value, moment) if isinstance(value, str) else None


def _usable(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or value < 0 or value > MAX_HINT:
        return None
    return round(value, 9)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*-?\d{1,20}(?:\.\d{1,20})?\s*", text) is not None


def _scaled(text: str | None, factor: float) -> float | None:
    return float(text) * factor if text and _is_number(text) else None


def _seconds(text: str | None, moment: datetime | None) -> float | None:
    """`30`, `1.5`, `7m12s`, `120ms`, `00:01:30`, an HTTP date, an ISO time, an epoch."""
    if not text:
        return None
    text = text.strip().lower()[:200]
    if _is_number(text):
        return _number_seconds(float(text), moment)
    if _WHOLE.match(text):
        return _sum(text)
    clock = _CLOCK.match(text)
    if clock:
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    target = _iso_date(text) or _http_date(text)
    if target is None or moment is None:
        return None
    return (target - moment).total_seconds()


def _number_seconds(number: float, moment: datetime | None, *, absolute: bool = False) -> float | None:
    if not math.isfinite(number):
        return None
    epoch = number / 1000 if number > 1e11 else number
    if epoch > 1e9:
        return None if moment is None else epoch - moment.timestamp()
    return None if absolute and number > MAX_HINT else number


def _sum(text: str) -> float:
    return math.fsum(float(number) * _UNITS[unit] for number, unit in _SPLIT.findall(text))


def _text_seconds(prose: str) -> float | None:
    for text in (prose[:20_000],):
        milliseconds = _BARE_MS.search(text)
        if milliseconds:
            return float(milliseconds[1]) / 1000
        match = _SPOKEN.search(text) or _BEFORE.search(text)
        if match:
            return _sum(match[1] or match[2])
        clock = _SPOKEN_CLOCK.search(text)
        if clock:
            return _seconds(clock[1], None)
        bare = _BARE.search(text)
        if bare:
            return float(bare[1])
        one = _ONE.search(text)
        if one and re.search(r"\b(?:again|retry|wait)\b", text):
            return float(_UNITS[one[1]])
    return None


_BUCKET = re.compile(
    r"^(?:(?:anthropic|x|ms-azureml-model|x-ms)-)?rate-?limit-"
    r"(?:(.{1,40})-)?(reset|remaining|limit)(?:-(.{1,40}))?$"
)


def _bucket_seconds(headers: dict[str, str], moment: datetime | None) -> float | None:
    """The reset of the exhausted bucket; of the fullest one when none is at zero."""
    buckets: dict[str, dict[str, str]] = {}
    for name, value in headers.items():
        match = _BUCKET.match(name)
        if match:
            buckets.setdefault(match[1] or match[3] or "", {})[match[2]] = value
        elif name == "ratelimit":  # the IETF draft's structured form: "default";r=0;t=42
            buckets.setdefault(name, {}).update(_structured(value))
        elif re.search(r"reset-after(?:-seconds)?$", name):
            buckets.setdefault(name, {})["reset"] = value
    waits = []
    for parts in buckets.values():
        seconds = _usable(_seconds(parts.get("reset"), moment))
        if seconds is not None:
            waits.append((_share_left(parts), -seconds))
    return -min(waits)[1] if waits else None


def _structured(value: str) -> dict[str, str]:
    names = {"r": "remaining", "t": "reset"}
    return {names[key]: number for key, number in re.findall(r";\s?([rt])=(\d{1,12})", value)}


def _share_left(parts: dict[str, str]) -> float:
    left, limit = _scaled(parts.get("remaining"), 1), _scaled(parts.get("limit"), 1)
    if left is None:
        return 0.0
    return left / limit if limit else min(left, 1.0)


def _http_date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _iso_date(text: str) -> datetime | None:
    if not re.match(r"^\d{4}-\d\d-\d\dt\d\d:\d\d", text):
        return None
    cleaned = re.sub(r"\.\d+", "", text.upper().replace("Z", "+00:00"))
    try:
        parsed = datetime.fromisoformat(cleaned)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)

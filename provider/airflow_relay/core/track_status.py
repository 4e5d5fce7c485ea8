"""Read the ``status.json`` that programs outside Airflow write about their tracks.

The format is that of the schedule-poll orchestrator pattern::

    {
      "dispatch_epoch": 1776729600,
      "track_a": {"phase": "complete", "completed_at": 1776742200},
      "track_b": {"phase": "running"},
      "track_c": {"phase": "tapped_out", "reason": "source offline"}
    }

Others own the file and may be writing it at this very moment. So whatever stands in it, parsing never
raises: a text that is not whole and sound is "unknown this time", and only a sound ``complete`` or
``tapped_out`` ever counts as an end.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow_relay.core.barrier import TERMINAL_PHASES, TrackPhase, TrackReport

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DISPATCH_EPOCH = "dispatch_epoch"
CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two machines may differ before a time is taken for wrong or for another run's."""
MAX_TEXT = 2000
"""Reasons and quotations in notes are cut to this many characters."""
MAX_DEPTH = 32
"""What lies deeper in a track's further fields is dropped, so that storing it cannot run out of stack."""

_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)
_OWN_FIELDS = frozenset({"phase", "reason", "completed_at"})
_REPORTABLE = {phase.value: phase for phase in (TrackPhase.RUNNING, TrackPhase.PENDING, *TERMINAL_PHASES)}


@dataclass(frozen=True)
class StatusRead:
    """A whole and sound status file."""

    dispatched_at: datetime | None
    """The file's ``dispatch_epoch`` in UTC; None when it is missing or absurd (``notes`` says so)."""
    reports: Mapping[str, TrackReport] = field(hash=False)
    """By track name: every expected track in the file, and any other object that has a phase."""
    notes: tuple[str, ...] = ()
    """What was odd in it, one sentence each, for the task log."""


@dataclass(frozen=True)
class UnknownThisTime:
    """Nothing can be said about the tracks from this reading; the next poll reads again."""

    reason: str
    normal: bool = False
    """True where nothing is wrong: the file does not exist yet and the first poll is still to come."""


StatusReading = StatusRead | UnknownThisTime


def parse_status(
    content: bytes | str | None,
    *,
    expected: Collection[str],
    now: datetime,
    first_poll_at: datetime,
    dispatched_at: datetime | None = None,
    oldest: datetime | None = None,
) -> StatusReading:
    """Parse the content of a status file. Never raises on content.

    :param content: the file as read (UTF-8, or UTF-16/32 as JSON allows), or None if there is no file.
    :param expected: names of the dispatched tracks.
    :param now: time of the reading, aware; times further ahead than :data:`CLOCK_SKEW` are refused.
    :param first_poll_at: until then a missing file is normal.
    :param dispatched_at: the run's recorded dispatch time, if the file must belong to this run: a file, or
        a track's end, from before it is a leftover of an earlier run and does not count. None: not checked.
    :param oldest: where neither that nor the file says when this run began: no end of it is older.
    """
    if content is None:
        return _missing(now, first_poll_at)
    try:
        text = content.decode(json.detect_encoding(content)) if isinstance(content, bytes) else content
        document = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:  # ValueError covers bad JSON, bad encoding, endless numbers
        return UnknownThisTime(f"not readable as JSON, perhaps half-written: {_brief(str(error))}")
    if not isinstance(document, dict):
        return UnknownThisTime(f"expected a JSON object of tracks, found {_kind(document)}")

    notes: list[str] = []
    file_dispatch = _time(DISPATCH_EPOCH, document.get(DISPATCH_EPOCH), now, notes)
    if dispatched_at and file_dispatch and file_dispatch < dispatched_at - CLOCK_SKEW:
        return UnknownThisTime(
            f"the file belongs to an earlier run: its dispatch_epoch is {file_dispatch.isoformat()}, "
            f"this run was dispatched at {dispatched_at.isoformat()}"
        )
    reports = {
        _storable_name(name): _report(name, value, now, dispatched_at or file_dispatch or oldest, notes)
        for name, value in document.items()
        if name != DISPATCH_EPOCH and (name in expected or (isinstance(value, dict) and "phase" in value))
    }
    return StatusRead(file_dispatch, reports, tuple(notes))


def parse_phase(value: object) -> TrackPhase:
    """Turn a reported phase into a :class:`TrackPhase`.

    Case, surrounding blanks, and ``-`` or blank for ``_`` do not matter. None is "nothing reported".
    Anything else is UNKNOWN: similar words (``completed``, ``ok``) are not guessed at, since a wrong guess
    would open the barrier too early.
    """
    if value is None:
        return TrackPhase.PENDING
    if not isinstance(value, str):
        return TrackPhase.UNKNOWN
    word = "_".join(value.casefold().replace("-", " ").replace("_", " ").split())
    return _REPORTABLE.get(word, TrackPhase.UNKNOWN)


def _missing(now: datetime, first_poll_at: datetime) -> UnknownThisTime:
    if now < first_poll_at:
        return UnknownThisTime(f"no status file yet; normal before {first_poll_at.isoformat()}", normal=True)
    return UnknownThisTime(
        f"there is no status file, though the first poll was due at {first_poll_at.isoformat()}; "
        "check the path, and that the tracks' launcher writes there"
    )


def _report(
    name: str, value: object, now: datetime, not_before: datetime | None, notes: list[str]
) -> TrackReport:
    label = repr(_brief(name))
    if not isinstance(value, dict):
        notes.append(f"track {label}: expected an object with a phase, found {_kind(value)}")
        return TrackReport(TrackPhase.UNKNOWN)
    phase = parse_phase(value.get("phase"))
    if phase is TrackPhase.UNKNOWN:
        known = ", ".join(sorted(_REPORTABLE))
        notes.append(f"track {label}: phase {_quote(value.get('phase'))} is none of {known}")
    completed_at = _time(f"completed_at of track {label}", value.get("completed_at"), now, notes)
    if completed_at and not_before and completed_at < not_before - CLOCK_SKEW and phase in TERMINAL_PHASES:
        notes.append(
            f"track {label}: ended at {completed_at.isoformat()}, before this run, which began at "
            f"{not_before.isoformat()} or later; left over from an earlier run, not counted"
        )
        return TrackReport(TrackPhase.UNKNOWN)
    return TrackReport(
        phase=phase,
        reason=_reason(label, value.get("reason"), notes),
        completed_at=completed_at,
        details=_storable({key: item for key, item in value.items() if key not in _OWN_FIELDS}),
    )


def _reason(label: str, value: object, notes: list[str]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        notes.append(f"track {label}: reason should be text, found {_kind(value)}; ignored")
        return None
    return _brief(value)


def _time(what: str, value: object, now: datetime, notes: list[str]) -> datetime | None:
    """Read Unix seconds; None and a note for anything that cannot be a time of this run."""
    if value is None:
        if what == DISPATCH_EPOCH:
            notes.append("dispatch_epoch is missing; the recorded dispatch time is used")
        return None
    if not isinstance(value, (int, float)):
        notes.append(f"{what}: expected Unix seconds, found {_kind(value)}; ignored")
        return None
    latest = (now + CLOCK_SKEW).timestamp()
    # The comparison alone refuses true, false, NaN and infinity, and compares an endless integer exactly.
    if _EARLIEST.timestamp() <= value <= latest:
        return datetime.fromtimestamp(value, tz=timezone.utc)
    notes.append(f"{what}: {value!r:.40} is no time from 2000 to now; ignored{_hint(value, latest)}")
    return None


def _hint(value: float, latest: float) -> str:
    if _EARLIEST.timestamp() * 1000 <= value <= latest * 1000:
        return " (it looks like milliseconds; write seconds)"
    return ""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that says two things under one name: there is no telling which one holds."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _clean(text: str) -> str:
    """Make foreign text storable: PostgreSQL refuses NUL, and lone surrogates cannot be encoded."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _brief(text: str) -> str:
    return _clean(text)[:MAX_TEXT]


def _quote(value: object) -> str:
    return repr(_brief(value)) if isinstance(value, str) else _kind(value)


def _storable_name(name: str) -> str:
    """Keep a sound name; escape another whole, so that cleaning never turns it into a real track's."""
    return name if _clean(name) == name else ascii(name)


def _storable(value: Any, depth: int = 0) -> Any:
    """Copy a JSON value so that any database can store it: clean texts, finite numbers, bounded depth."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {_clean(key): _storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

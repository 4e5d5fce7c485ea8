"""The barrier: wait until every parallel track has ended, or until the ceiling, whichever comes first.

One pure function, :func:`poll`, looks at what is known at one moment and says what to do. It keeps no
state: the caller passes in when the tracks were dispatched, what the tracks report now and what was
already final before, and stores what comes back. So the first poll and the sixth run the same code, and
a retry, a clear or a restart between two polls changes nothing.

Rules, in the order in which they are applied to a track:

1. What was final at an earlier poll stays as it was (``finished``).
2. A reported end (``complete`` or ``tapped_out``) counts.
3. A run that is gone without having reported an end is tapped out.
4. A track past its own ``max_wallclock`` is tapped out.
5. At the ceiling whatever is left is tapped out and the barrier opens.

Source: the schedule-poll orchestrator pattern (issue 6, DESIGN section 7).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from airflow_relay.core.naming import MAX_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CEILING_REASON = "[TAPPED — wallclock ceiling hit]"
RUN_DIED_REASON = "[TAPPED — run ended without reporting]"
TRACK_LIMIT_REASON = "[TAPPED — track's own max_wallclock hit]"

MIN_POLL_INTERVAL = timedelta(seconds=1)
"""Airflow's scheduler reschedules sensors in a loop of about a second; asking for less does nothing."""

MAX_DURATION = timedelta(days=366)
"""Longer durations are taken for a unit mistake (milliseconds for seconds), and would overflow dates."""

_YEARS = range(1970, 9001)
_HOUR = timedelta(hours=1)
_UTC = timezone.utc


class TrackPhase(str, Enum):
    """Where a track stands."""

    PENDING = "pending"  # nothing was reported about it (yet)
    RUNNING = "running"
    COMPLETE = "complete"  # terminal: it did its work
    TAPPED_OUT = "tapped_out"  # terminal: it gave up, or was given up on; the reason says why
    UNKNOWN = "unknown"  # something was reported that we do not understand; counts as running


TERMINAL_PHASES = frozenset({TrackPhase.COMPLETE, TrackPhase.TAPPED_OUT})


class BarrierSettingsError(ValueError):
    """A setting of the barrier is impossible or contradicts another one.

    :ivar field: name of the offending setting, such as ``first_poll``.
    """

    def __init__(self, field_name: str, problem: str) -> None:
        super().__init__(f"{field_name}: {problem}")
        self.field = field_name


class BarrierTimeError(ValueError):
    """A time handed to the barrier has no timezone, or lies outside the years 1970 to 9000."""


def as_duration(field_name: str, value: timedelta | float) -> timedelta:
    """Turn a setting into a ``timedelta``.

    :param value: a ``timedelta``, or a number of seconds.
    :raises BarrierSettingsError: not a duration, NaN, infinite, negative, or above :data:`MAX_DURATION`.
    """
    if isinstance(value, bool) or not isinstance(value, (timedelta, int, float)):
        raise BarrierSettingsError(field_name, f"{value!r} is neither a timedelta nor a number of seconds")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise BarrierSettingsError(
            field_name, f"{seconds} is not a duration; give a finite number of seconds"
        )
    if seconds < 0:
        raise BarrierSettingsError(field_name, f"{value} is negative; a duration is not")
    if seconds > MAX_DURATION.total_seconds():
        raise BarrierSettingsError(field_name, f"{value} is out of range; at most {MAX_DURATION.days} days")
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


@dataclass(frozen=True, init=False)
class BarrierSettings:
    """When to look, and when to stop waiting. All durations count from the recorded dispatch time."""

    first_poll: timedelta
    """First look at the tracks; about the shortest time in which a track can end. Default 3 h, may be 0."""
    poll_interval: timedelta
    """Time between two looks; the most that finished tracks wait. Default 30 min, at least 1 s."""
    ceiling: timedelta
    """The barrier opens here at the latest. Default 14 h."""

    def __init__(
        self,
        *,
        first_poll: timedelta | float = timedelta(hours=3),
        poll_interval: timedelta | float = timedelta(minutes=30),
        ceiling: timedelta | float = timedelta(hours=14),
    ) -> None:
        """Check and normalise the settings; plain numbers are seconds.

        :raises BarrierSettingsError: a value is impossible, or ``first_poll`` lies after ``ceiling``.
        """
        first = as_duration("first_poll", first_poll)
        interval = as_duration("poll_interval", poll_interval)
        last = as_duration("ceiling", ceiling)
        if interval < MIN_POLL_INTERVAL:
            raise BarrierSettingsError(
                "poll_interval", f"{interval.total_seconds()} s is too short; poll at most once a second"
            )
        if last <= timedelta(0):
            raise BarrierSettingsError("ceiling", "must be greater than zero, or nothing is ever waited for")
        if first > last:
            raise BarrierSettingsError(
                "first_poll", f"{first} lies after the ceiling of {last}; poll earlier or raise the ceiling"
            )
        object.__setattr__(self, "first_poll", first)
        object.__setattr__(self, "poll_interval", interval)
        object.__setattr__(self, "ceiling", last)


@dataclass(frozen=True)
class Track:
    """A track that the barrier waits for, as recorded at dispatch."""

    name: str
    max_wallclock: timedelta | None = None
    """Its own budget, from dispatch; the first poll at or after it taps the track out. None: no own limit."""

    def __post_init__(self) -> None:
        """Take a number of seconds too; what is no duration is left for :func:`check_tracks` to refuse."""
        if self.max_wallclock is not None:
            with suppress(BarrierSettingsError):
                object.__setattr__(self, "max_wallclock", as_duration("max_wallclock", self.max_wallclock))


@dataclass(frozen=True)
class TrackReport:
    """What the source of truth says about one track at this poll."""

    phase: TrackPhase
    reason: str | None = None
    completed_at: datetime | None = None
    """When the track says that it ended."""
    run_alive: bool | None = None
    """Whether the track's run still exists and has not ended; None when nobody can tell. Read this *before*
    the phase: a run that reports and ends between the two readings must not look dead."""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Whatever else the track wrote (JSON values), handed through to the result untouched."""


@dataclass(frozen=True)
class TrackResult:
    """The end of one track; final once it exists."""

    name: str
    phase: TrackPhase
    reason: str | None = None
    completed_at: datetime | None = None
    """As the track reported it; for a track tapped out by the barrier, the time of that poll."""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """:raises ValueError: the phase is not a terminal one."""
        if self.phase not in TERMINAL_PHASES:
            raise ValueError(f"track {self.name!r}: {self.phase.value!r} is no final phase")


class PollLogLine(TypedDict):
    """One line of the poll log, ready for ``json.dumps``."""

    ts: float
    phases: dict[str, str]
    elapsed_h: float
    done: bool


@dataclass(frozen=True, kw_only=True)
class PollDecision:
    """What one poll found. Store ``results`` and pass them to the next poll as ``finished``."""

    polled_at: datetime
    elapsed_h: float
    """Hours since dispatch (negative when a clock was set back)."""
    phases: Mapping[str, TrackPhase]
    """Phase of each expected track as found, before a tap-out by the ceiling."""
    done: bool
    """All tracks were terminal as found. False at a ceiling that had to tap tracks out."""
    results: Mapping[str, TrackResult]
    """Every track that is final after this poll, by name."""
    tapped: tuple[TrackResult, ...]
    """Tracks that *this* poll tapped out; never one that was final before."""
    unknown_tracks: tuple[str, ...]
    """Names that the source reports and that nobody dispatched; they hold nothing up."""
    notes: tuple[str, ...]
    """Oddities for the task log, one sentence each."""

    def log_line(self) -> PollLogLine:
        """Return the poll log entry: ``ts`` (Unix seconds), ``phases``, ``elapsed_h``, ``done``."""
        return {
            "ts": self.polled_at.timestamp(),
            "phases": {name: phase.value for name, phase in self.phases.items()},
            "elapsed_h": self.elapsed_h,
            "done": self.done,
        }


@dataclass(frozen=True, kw_only=True)
class Wait(PollDecision):
    """Some track is unfinished and the ceiling is not reached: look again at ``until``."""

    until: datetime


@dataclass(frozen=True, kw_only=True)
class Proceed(PollDecision):
    """All tracks are final: open the barrier."""


@dataclass(frozen=True, kw_only=True)
class ForceProceed(PollDecision):
    """The ceiling is reached: open the barrier, with what was left tapped out."""


Decision = Wait | Proceed | ForceProceed

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def check_tracks(tracks: Sequence[Track], settings: BarrierSettings) -> None:
    """Refuse contradicting tracks when a pipeline is declared, before anything is dispatched.

    :raises BarrierSettingsError: an empty or repeated name, or a ``max_wallclock`` that is not positive,
        or that lies after the ceiling and so could never take effect.
    """
    seen: set[str] = set()
    for track in tracks:
        if not 0 < len(track.name) <= MAX_KEY:
            raise BarrierSettingsError("tracks", f"{track.name!r:.50}: a name has 1 to {MAX_KEY} characters")
        if track.name in seen:
            raise BarrierSettingsError("tracks", f"{track.name!r} is listed twice; names must differ")
        seen.add(track.name)
        if track.max_wallclock is None:
            continue
        field_name = f"max_wallclock of track {track.name!r}"
        limit = as_duration(field_name, track.max_wallclock)
        if limit == timedelta(0):
            raise BarrierSettingsError(field_name, "must be greater than zero")
        if limit > settings.ceiling:
            raise BarrierSettingsError(
                field_name, f"{limit} lies after the ceiling of {settings.ceiling}; it would never apply"
            )


def ceiling_at(dispatched_at: datetime, settings: BarrierSettings) -> datetime:
    """Return the instant (UTC) at which the barrier opens whatever the tracks say."""
    return _as_utc("dispatched_at", dispatched_at) + settings.ceiling


def next_poll_at(dispatched_at: datetime, now: datetime, settings: BarrierSettings) -> datetime:
    """Return the first planned poll (UTC) after ``now``.

    Polls stand on a grid anchored at the dispatch, ``first_poll + k * poll_interval``, so a late poll does
    not shift those after it. A grid point beyond the ceiling is pulled forward to the ceiling. From the
    ceiling on nothing is planned any more, and the ceiling itself is returned.
    """
    now = _as_utc("now", now)
    last = ceiling_at(dispatched_at, settings)
    first = _as_utc("dispatched_at", dispatched_at) + settings.first_poll
    if now < first:
        return first
    passed = (now - first) // settings.poll_interval
    return min(first + (passed + 1) * settings.poll_interval, last)


def poll(
    tracks: Sequence[Track],
    dispatched_at: datetime,
    now: datetime,
    settings: BarrierSettings,
    *,
    reports: Mapping[str, TrackReport] = _NOTHING,
    finished: Mapping[str, TrackResult] = _NOTHING,
) -> Decision:
    """Decide whether the barrier opens.

    A pure function: the same arguments give the same decision. It may be asked at any time; before the
    first planned poll it still opens if everything has ended already.

    :param tracks: the tracks that were dispatched; with none there is nothing to wait for.
    :param dispatched_at: recorded dispatch time, aware; where all durations start.
    :param now: time of this poll, aware.
    :param reports: what the source says now, by track name. A track without an entry is pending; pass
        nothing when the source could not be read this time.
    :param finished: ``results`` of the earlier polls, by track name. The first end of a track is its end,
        whatever is reported later.
    :raises BarrierTimeError: a time without timezone, or outside the years 1970 to 9000.
    """
    now = _as_utc("now", now)
    elapsed = now - _as_utc("dispatched_at", dispatched_at)
    phases: dict[str, TrackPhase] = {}
    results: dict[str, TrackResult] = {}
    tapped: list[TrackResult] = []
    for track in tracks:
        report = reports.get(track.name)
        end = finished.get(track.name) or _reported_end(track, report)
        if end is None:
            end = _tapped_early(track, report, elapsed, now)
            if end is not None:
                tapped.append(end)
        if end is not None:
            results[track.name] = end
            phases[track.name] = end.phase
        else:
            phases[track.name] = report.phase if report else TrackPhase.PENDING

    done = len(results) == len(phases)
    at_ceiling = elapsed >= settings.ceiling
    if at_ceiling:
        left = [_tap(name, CEILING_REASON, reports.get(name), now) for name in phases if name not in results]
        tapped += left
        results.update((end.name, end) for end in left)

    unknown = tuple(sorted(set(reports) - set(phases)))
    found: dict[str, Any] = {
        "polled_at": now,
        "elapsed_h": elapsed / _HOUR,
        "phases": MappingProxyType(phases),
        "done": done,
        "results": MappingProxyType(results),
        "tapped": tuple(tapped),
        "unknown_tracks": unknown,
        "notes": _notes(phases, unknown, reports, finished),
    }
    if done:
        return Proceed(**found)
    if at_ceiling:
        return ForceProceed(**found)
    return Wait(until=next_poll_at(dispatched_at, now, settings), **found)


def _reported_end(track: Track, report: TrackReport | None) -> TrackResult | None:
    if report is None or report.phase not in TERMINAL_PHASES:
        return None
    return TrackResult(track.name, report.phase, report.reason, report.completed_at, report.details)


def _tapped_early(
    track: Track, report: TrackReport | None, elapsed: timedelta, now: datetime
) -> TrackResult | None:
    """Tap a track out before the ceiling: its run is gone, or its own time is up."""
    if report is not None and report.run_alive is False:
        return _tap(track.name, RUN_DIED_REASON, report, now)
    if track.max_wallclock is not None and elapsed >= track.max_wallclock:
        return _tap(track.name, TRACK_LIMIT_REASON, report, now)
    return None


def _tap(name: str, reason: str, report: TrackReport | None, now: datetime) -> TrackResult:
    return TrackResult(name, TrackPhase.TAPPED_OUT, reason, now, report.details if report else {})


def _notes(
    phases: Mapping[str, TrackPhase],
    unknown: tuple[str, ...],
    reports: Mapping[str, TrackReport],
    finished: Mapping[str, TrackResult],
) -> tuple[str, ...]:
    notes = []
    if unknown:
        notes.append(f"reported, but not among the tracks waited for, and so ignored: {', '.join(unknown)}")
    for name in phases:
        report, end = reports.get(name), finished.get(name)
        if report is None:
            continue
        if end is not None and report.phase is not end.phase:
            notes.append(
                f"track {name!r} ended as {end.phase.value}, now reports {report.phase.value}; its end stands"
            )
        elif end is None and report.phase is TrackPhase.UNKNOWN:
            notes.append(f"track {name!r} reports a phase that is not known; it counts as running")
    return tuple(notes)


def _as_utc(what: str, value: datetime) -> datetime:
    """Convert to UTC, so that subtracting two times gives elapsed time across a clock change.

    (Python subtracts two datetimes of the *same* zone by their wall-clock readings.)
    """
    if value.utcoffset() is None:
        raise BarrierTimeError(f"{what}: {value.isoformat()} has no timezone; pass an aware datetime in UTC")
    if value.year not in _YEARS:
        raise BarrierTimeError(f"{what}: {value.isoformat()} is outside the years 1970 to 9000")
    return value.astimezone(_UTC)

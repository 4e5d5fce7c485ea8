"""A stage's breaker: it holds grants back while the service behind the stage is down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple

from airflow_relay.core.errors.taxonomy import SYSTEMIC, ErrorClass
from airflow_relay.core.states import RunResult


class BreakerState(str, Enum):
    """Where a breaker stands. That an open breaker's pause is over follows from the time; it is no state."""

    CLOSED = "closed"  # grants flow
    OPEN = "open"  # grants wait; after the pause one item may be the probe
    HALF_OPEN = "half_open"  # the probe runs; all others wait


class BreakerGate(str, Enum):
    """What the dispatcher may grant for the stage now."""

    CLOSED = "closed"  # no objection (as with electricity: a closed breaker conducts)
    OPEN = "open"  # nothing
    PROBE = "probe"  # exactly one item; say so with :func:`probe_granted` in the same transaction


class Transition(str, Enum):
    """What a call has changed; OPENED is the one that alerts."""

    NONE = "none"
    OPENED = "opened"
    REOPENED = "reopened"  # the probe failed: the same outage goes on, nobody is alerted again
    PROBING = "probing"
    PROBE_LOST = "probe_lost"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class BreakerSettings:
    """When a breaker opens and how long it waits.

    :param threshold: systemic failures within ``window`` that open it.
    :param pause: wait before the first probe; doubles with each failed probe up to ``max_pause``.
    """

    threshold: int = 5
    window: timedelta = timedelta(hours=1)
    pause: timedelta = timedelta(minutes=30)
    max_pause: timedelta = timedelta(hours=4)


DEFAULT_SETTINGS: Final = BreakerSettings()


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """The breaker of one stage, as the ledger keeps it.

    :param failures: instants of recent systemic failures, oldest first, at most the threshold's number.
    :param opened_at: when the present pause began; ``None`` while closed.
    :param pause: length of the present pause; ``None`` while closed.
    :param probe_run: ledger id of the run that is the probe: the lease ends with this run, however it ends.
    :param reason: why it is open, in words.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: tuple[datetime, ...] = ()
    opened_at: datetime | None = None
    pause: timedelta | None = None
    probe_run: int | None = None
    reason: str = ""

    @property
    def probe_at(self) -> datetime | None:
        """When the pause ends and a probe may go; ``None`` while closed or probing."""
        if self.state is not BreakerState.OPEN or self.opened_at is None or self.pause is None:
            return None
        return self.opened_at + self.pause

    def to_json(self) -> dict[str, Any]:
        """JSON for the ledger; instants as ISO text, durations in seconds."""
        return {
            "state": self.state.value,
            "failures": [at.isoformat() for at in self.failures],
            "opened_at": None if self.opened_at is None else self.opened_at.isoformat(),
            "pause": None if self.pause is None else self.pause.total_seconds(),
            "probe_run": self.probe_run,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Breaker:
        """The inverse of :meth:`to_json`."""
        opened_at, pause = data["opened_at"], data["pause"]
        return cls(
            state=BreakerState(data["state"]),
            failures=tuple(datetime.fromisoformat(at) for at in data["failures"]),
            opened_at=None if opened_at is None else datetime.fromisoformat(opened_at),
            pause=None if pause is None else timedelta(seconds=pause),
            probe_run=data["probe_run"],
            reason=data["reason"],
        )


class Step(NamedTuple):
    """The breaker after a call, what has changed, and why in words (empty when nothing has)."""

    breaker: Breaker
    transition: Transition = Transition.NONE
    reason: str = ""

    @property
    def alerts(self) -> bool:
        """A person should hear of it: once per outage, when the breaker leaves CLOSED."""
        return self.transition is Transition.OPENED


def gate(breaker: Breaker, now: datetime) -> BreakerGate:
    """What may be granted at ``now`` (aware UTC).

    A pause that began further ahead than it is long was begun by a clock that has been set back since: it
    would last for as long as that clock was wrong, so it counts as over.
    """
    if breaker.state is BreakerState.CLOSED:
        return BreakerGate.CLOSED
    if breaker.state is BreakerState.HALF_OPEN or breaker.opened_at is None or breaker.pause is None:
        return BreakerGate.OPEN
    return BreakerGate.PROBE if abs(now - breaker.opened_at) >= breaker.pause else BreakerGate.OPEN


def record(
    breaker: Breaker,
    *,
    systemic: bool,
    success: bool,
    run_id: int,
    now: datetime,
    settings: BreakerSettings = DEFAULT_SETTINGS,
) -> Step:
    """Take in how a run of the stage ended with an answer of the service.

    A run that says nothing about the service (worker lost, cancelled, withdrawn, skipped) is not recorded:
    :func:`probe_lost` is for those.

    The probe decides: a success closes the breaker, and so does an item-level error (content policy, context
    length, …), since the service has read the item and answered; a systemic failure opens it again. Runs that
    were granted before the breaker opened and end afterwards change nothing: their failures are the same
    outage, and their success may be older than it.

    :param systemic: the error is of a class that concerns the service; ignored when ``success``.
    :param run_id: ledger id of the run.
    """
    failed = systemic and not success
    closed = breaker.state is BreakerState.CLOSED
    if closed and not failed:
        return Step(breaker)
    if breaker.state is BreakerState.HALF_OPEN and run_id == breaker.probe_run:
        if failed:
            return _reopened(breaker, now=now, settings=settings)
        answer = "succeeded" if success else "was answered, with an error that concerns its item only"
        return Step(breaker=Breaker(), transition=Transition.CLOSED, reason=f"The probe {answer}.")
    if not closed:
        return Step(breaker)
    recent = tuple(at for at in breaker.failures if abs(now - at) <= settings.window)
    failures = (*recent, now)[-settings.threshold :]
    if len(failures) < settings.threshold:
        return Step(breaker=replace(breaker, failures=failures))
    reason = f"{len(failures)} systemic failures within {_span(settings.window)}."
    return _opened(replace(breaker, failures=failures), reason=reason, pause=settings.pause, now=now)


_UNREAD: Final = (None, ErrorClass.UNKNOWN, ErrorClass.CANCELLED)


def run_ended(
    breaker: Breaker,
    *,
    result: RunResult,
    error_class: str | None,
    run_id: int,
    now: datetime,
    settings: BreakerSettings = DEFAULT_SETTINGS,
) -> Step:
    """A run of the stage was closed: an answer of the service counts, anything else ends a probe's lease.

    A success is an answer, and so is a failure whose class somebody has read off it.

    :param error_class: value of an ``ErrorClass``; ``None`` when none was told.
    """
    success = result is RunResult.SUCCESS
    if not success and (result is not RunResult.FAILED or error_class in _UNREAD):
        return probe_lost(breaker, run_id=run_id)
    systemic = error_class in SYSTEMIC
    return record(breaker, systemic=systemic, success=success, run_id=run_id, now=now, settings=settings)


def probe_granted(breaker: Breaker, *, run_id: int) -> Step:
    """The dispatcher has granted ``run_id`` as the probe.

    :raises ValueError: the breaker is not open: a second probe, or a grant that needs none.
    """
    if breaker.state is not BreakerState.OPEN:
        raise ValueError(f"Run {run_id} cannot be a probe: the breaker is {breaker.state.value}, not open.")
    return Step(
        breaker=replace(breaker, state=BreakerState.HALF_OPEN, probe_run=run_id),
        transition=Transition.PROBING,
        reason=f"Run {run_id} is the probe.",
    )


def probe_lost(breaker: Breaker, *, run_id: int) -> Step:
    """A run has ended without an answer of the service; was it the probe, the next item may be one at once.

    To be called for each run that is closed or superseded without :func:`record`.
    """
    if breaker.state is not BreakerState.HALF_OPEN or run_id != breaker.probe_run:
        return Step(breaker)
    return Step(
        breaker=replace(breaker, state=BreakerState.OPEN, probe_run=None),
        transition=Transition.PROBE_LOST,
        reason=f"Run {run_id}, the probe, has ended without an answer: another item takes its place.",
    )


def open_by_hand(
    breaker: Breaker, *, now: datetime, reason: str, settings: BreakerSettings = DEFAULT_SETTINGS
) -> Step:
    """A person opens it. It probes after its pause like any other; holds stop a stage for longer.

    An open breaker begins a new pause of the same length, and a running probe no longer counts.
    """
    pause = breaker.pause or settings.pause
    step = _opened(breaker, reason=f"Opened by hand: {reason}", pause=pause, now=now)
    return step if breaker.state is BreakerState.CLOSED else step._replace(transition=Transition.REOPENED)


def close_by_hand(breaker: Breaker, *, reason: str) -> Step:
    """A person closes it: grants flow at once, and past failures are forgotten."""
    if breaker.state is BreakerState.CLOSED:
        return Step(breaker=Breaker())
    return Step(breaker=Breaker(), transition=Transition.CLOSED, reason=f"Closed by hand: {reason}")


def _opened(breaker: Breaker, *, reason: str, pause: timedelta, now: datetime) -> Step:
    opened = replace(
        breaker, state=BreakerState.OPEN, opened_at=now, pause=pause, probe_run=None, reason=reason
    )
    said = f"{reason} Grants wait {_span(pause)}, then one item tries."
    return Step(breaker=opened, transition=Transition.OPENED, reason=said)


def _reopened(breaker: Breaker, *, now: datetime, settings: BreakerSettings) -> Step:
    pause = min((breaker.pause or settings.pause) * 2, settings.max_pause)
    step = _opened(breaker, reason=breaker.reason, pause=pause, now=now)
    said = f"The probe failed as well. Grants wait {_span(pause)}, then one item tries."
    return step._replace(transition=Transition.REOPENED, reason=said)


def _span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    return f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"

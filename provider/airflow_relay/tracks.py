"""``track()``: work that always reports its end to the barrier that waits for it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowSkipException,
    TaskAwaitingInput,
    TaskDeferred,
)

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.barrier import TrackPhase, TrackResult
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import LedgerIdentityError, LedgerUnreachableError
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import DEFAULT_GROUP, GroupPlace
from airflow_relay.ledger.tracks import TrackResultError, TrackRow

if TYPE_CHECKING:
    from typing_extensions import Self

log: Final = logging.getLogger(__name__)
T = TypeVar("T")

CONF_KEY: Final = "relay_track"
"""Where the conf of a dispatched run names its track."""

MAX_REASON: Final = 2000
"""Characters of an error's text that are kept as the reason."""

PATIENCE: Final = timedelta(minutes=5)
"""How long a silent ledger is asked again for a track's begin or end: hours of work hang on it."""

ASK_AGAIN_AFTER: Final = timedelta(seconds=5)

_GOES_ON = (AirflowRescheduleException, TaskDeferred, TaskAwaitingInput)
"""Raised by a task that will go on later: the track has not ended."""


class TrackNameError(ValueError):
    """The name given to ``track()`` is not the one that its run was dispatched for."""


class TrackTerminatedError(SystemExit):
    """The task was told to end (SIGTERM) while its track was at work."""


@dataclass(frozen=True)
class TrackIds:
    """How a dispatched run names its track: ids only."""

    group: int
    track: str
    ledger: str

    def to_conf(self) -> dict[str, Any]:
        """The conf of the run."""
        return {CONF_KEY: {"group": self.group, "track": self.track, "ledger": self.ledger}}

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any] | None) -> TrackIds | None:
        """The inverse of :meth:`to_conf`; ``None`` for a run that nobody dispatched as a track."""
        found = (conf or {}).get(CONF_KEY)
        return None if found is None else cls(found["group"], found["track"], found["ledger"])


def track(
    name: str | None = None, *, group: str | None = None, context: Mapping[str, Any] | None = None
) -> TrackGuard:
    """Report the work in the ``with`` block as a track: its begin, and always an end.

    ::

        @task
        def analyse():
            with track() as this:
                this.result = {"pages": count_pages()}

    The end is ``complete``, or ``tapped_out`` with the reason when the block raises, exits, or is terminated
    (SIGTERM). An error after which Airflow retries the task is no end, and neither is a deferral. What cannot
    report any more, since its process was killed, is found by the barrier's next poll. The first end of a
    track stands: one that was tapped out meanwhile stays so, whatever is reported later.

    :param name: the track; may be left out in a run that ``DispatchTracks`` has started.
    :param group: of tracks that are tasks of the barrier's own DAG run: the barrier's ``group``.
    :param context: Airflow's task context; by default the current one.
    """
    if context is None:
        from airflow.sdk import get_current_context  # noqa: PLC0415 - only inside a task

        context = get_current_context()
    return TrackGuard(context, name=name, group=group)


class TrackGuard:
    """The context manager that :func:`track` returns.

    :ivar result: a JSON value of at most 64 KB, reported with a ``complete`` end.
    """

    def __init__(self, context: Mapping[str, Any], *, name: str | None, group: str | None) -> None:
        self.result: Any = None
        self._context = context
        self._ids = TrackIds.from_conf(context["dag_run"].conf) if group is None else None
        if self._ids is not None and name not in (None, self._ids.track):
            raise TrackNameError(
                f"This run was dispatched as track {self._ids.track!r}, not as {name!r}: use track() without "
                "a name, or group= for a barrier of this run's own."
            )
        self.name: str | None = self._ids.track if self._ids else name
        self._place = GroupPlace(
            dag_id=context["dag_run"].dag_id, run_id=context["dag_run"].run_id, name=group or DEFAULT_GROUP
        )
        self._group_id: int | None = None
        self._tap_out_reason: str | None = None
        self._termination = Termination()

    def tap_out(self, reason: str) -> None:
        """End as ``tapped_out`` with this reason when the block is left, without an error."""
        self._tap_out_reason = reason

    def __enter__(self) -> Self:
        if self.name is None:
            log.info("This run was not dispatched as a track: its work is done, but nobody waits for it.")
            return self
        row = _patiently(self._begin)
        self._group_id = row.group_id
        if row.is_final:
            log.warning("Track %r has ended as %s (%s); that end stands.", *_end_of(row))
        self._termination.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._termination.forget()
        if self.name is None or isinstance(error, _GOES_ON):
            return
        if error is not None:
            self._failed(error)
            return
        try:
            self._end()
        except TrackResultError as refused:
            self._failed(refused)
            raise

    def _ledger(self) -> Ledger:
        ledger = get_ledger()
        if self._ids is not None and self._ids.ledger != ledger.ledger_id:
            raise LedgerIdentityError(
                f"Track {self.name!r} was dispatched from ledger {self._ids.ledger}, but this process reads "
                f"{ledger.ledger_id}: give all workers the same connection 'relay_ledger'."
            )
        return ledger

    def _begin(self) -> TrackRow:
        with self._ledger().write() as tx:
            return self._begin_in(tx)

    def _begin_in(self, tx: Tx) -> TrackRow:
        assert self.name is not None
        now = utcnow()
        if self._ids is not None:
            group = track_groups.by_id(tx, self._ids.group)
        else:
            clear_number = int(getattr(self._context["dag_run"], "clear_number", 0) or 0)
            group = track_groups.reopen_undispatched(tx, self._place, clear_number=clear_number, now=now)
        return tracks.begin(
            tx,
            group.id,
            self.name,
            dag_id=self._place.dag_id,
            run_id=self._place.run_id,
            task=compat.task_key(self._context["ti"]),
            now=now,
        )

    def _end(self) -> None:
        if self._tap_out_reason is None:
            self._report(TrackPhase.COMPLETE, None)
        else:
            self._report(TrackPhase.TAPPED_OUT, self._tap_out_reason)

    def _failed(self, error: BaseException) -> None:
        """Report the end by an error; a ledger that is down must not hide the error itself."""
        if compat.will_be_retried(self._context["ti"], error):
            log.info("Track %r goes on with the task's next try.", self.name)
            return
        try:
            self._report(TrackPhase.TAPPED_OUT, _reason(error), with_result=False)
        except Exception:
            log.exception("Track %r could not report its end; the barrier's next poll finds it.", self.name)

    def _report(self, phase: TrackPhase, reason: str | None, *, with_result: bool = True) -> None:
        assert self.name is not None
        now = utcnow()
        details = {"result": self.result} if with_result and self.result is not None else {}
        end = TrackResult(self.name, phase, _clean(reason), now, details)
        known = _patiently(lambda: self._write_end(end, now))
        if known is None:
            log.info("Track %r reports %s", self.name, phase.value)
            return
        log.warning("Track %r had ended as %s (%s); that end stands.", *_end_of(known))

    def _write_end(self, end: TrackResult, now: datetime) -> TrackRow | None:
        """Record the end; returns the track when it had ended before."""
        assert self._group_id is not None
        with self._ledger().write() as tx:
            if tracks.end(tx, self._group_id, end, now=now):
                return None
            return next(row for row in tracks.of_group(tx, self._group_id) if row.name == end.name)


def _patiently(write: Callable[[], T]) -> T:
    for _ in range(PATIENCE // ASK_AGAIN_AFTER):
        try:
            return write()
        except LedgerUnreachableError as error:  # noqa: PERF203 - each try waits for a database
            log.warning("%s It is asked again.", error)
            time.sleep(ASK_AGAIN_AFTER.total_seconds())
    return write()


def _end_of(row: TrackRow) -> tuple[str, str, str]:
    return row.name, row.phase.value, row.reason or "no reason given"


def _reason(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"skipped: {error}" if isinstance(error, AirflowSkipException) else text


def _clean(text: str | None) -> str | None:
    """The text as any database stores it: without NUL and lone surrogates, and not endless."""
    if text is None:
        return None
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:MAX_REASON]


class Termination:
    """Turns SIGTERM into an exception while a track is at work, so that its block is left.

    Airflow's own handler only calls the operator's ``on_kill``; the process then works on until it is killed.
    """

    def __init__(self) -> None:
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None
        self._pid: int | None = None

    def watch(self) -> None:
        """Handle SIGTERM. In another thread than the main one Python cannot, and nothing is done."""
        if threading.current_thread() is threading.main_thread():
            self._pid = os.getpid()
            self._previous = signal.signal(signal.SIGTERM, self._terminate)

    def forget(self) -> None:
        """Give SIGTERM back to whoever handled it before."""
        if self._pid is not None:
            # None: a handler that is not Python's own, which cannot be put back.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)
            self._pid = None

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if callable(self._previous):
            self._previous(number, frame)
        if os.getpid() == self._pid:
            raise TrackTerminatedError("terminated (SIGTERM)")
        if self._previous is signal.SIG_DFL:  # a child that inherited this handler dies as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

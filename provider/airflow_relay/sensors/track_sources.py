"""Where a barrier learns about its tracks: the ledger and Airflow, or a status file that others write.

Both answer one question, ``look``, before the barrier's transaction; what they saw then turns the ledger's
rows, read inside it, into reports. So the aliveness of a run is always read before its track's phase: a run
that reports and ends between the two readings does not look dead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from airflow_relay import compat
from airflow_relay.core.barrier import BarrierSettings, TrackReport
from airflow_relay.core.completion import ENDED_STATES, has_ended
from airflow_relay.core.track_status import StatusRead, StatusReading, UnknownThisTime, parse_status
from airflow_relay.ledger.track_groups import Clock, TrackGroup
from airflow_relay.ledger.tracks import TrackResultError, TrackRow, checked_result

log: Final = logging.getLogger(__name__)

STATUS_FILE_LIMIT: Final = 10 * 1024 * 1024
"""Bytes. A larger file is no status file."""

READ_AGAIN: Final = timedelta(seconds=1)
"""How long a half-written file gets before it is read once more, where this reading is the last."""

BATCH: Final = 50
"""Run ids asked for at once: Airflow refuses a query of many long ids."""


class Sighting(Protocol):
    """What one look saw."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was odd, one sentence each, for the task log."""

    @property
    def epoch(self) -> datetime | None:
        """The dispatch that a status file is about."""

    def reports(self, rows: Sequence[TrackRow]) -> Mapping[str, TrackReport]:
        """Reports by track name.

        :param rows: the ledger's tracks, read after the look.
        """


class TrackSource(Protocol):
    """A source of truth about tracks."""

    def look(self, group: TrackGroup, rows: Sequence[TrackRow], now: datetime) -> Sighting:
        """Ask outside any transaction; never raises for what a source holds or fails to hold."""


@dataclass(frozen=True)
class LedgerSource:
    """Tracks report to the ledger; Airflow says whether the run behind an unfinished one still lives."""

    def look(self, group: TrackGroup, rows: Sequence[TrackRow], now: datetime) -> Sighting:  # noqa: ARG002
        """Ask Airflow about the runs of unfinished tracks: one call per 50 runs of a DAG."""
        by_dag: dict[str, list[TrackRow]] = {}
        for row in rows:
            if row.may_be_dead and row.dag_id and row.run_id:
                by_dag.setdefault(row.dag_id, []).append(row)
        alive: dict[str, bool] = {}
        for dag_id, of_dag in by_dag.items():
            for start in range(0, len(of_dag), BATCH):
                batch = of_dag[start : start + BATCH]
                states = compat.task_states(dag_id, sorted({str(row.run_id) for row in batch}))
                alive.update({row.name: _is_alive(row, states.get(str(row.run_id))) for row in batch})
        return LedgerSighting(alive)


def _is_alive(row: TrackRow, states: Mapping[str, Any] | None) -> bool:
    """Whether somebody may still report the track: its task, or before that began any task of its run."""
    if states is None or has_ended(states):
        return False
    return row.task is None or str(states.get(row.task)) not in ENDED_STATES


@dataclass(frozen=True)
class LedgerSighting:
    """Which runs are alive."""

    alive: Mapping[str, bool]
    notes: tuple[str, ...] = ()
    epoch: datetime | None = None

    def reports(self, rows: Sequence[TrackRow]) -> Mapping[str, TrackReport]:
        """The rows, with the aliveness of their runs."""
        return {row.name: row.as_report(run_alive=self.alive.get(row.name)) for row in rows}


@dataclass(frozen=True)
class StatusFileSource:
    """Programs outside Airflow write a ``status.json``; others own it, it is only read.

    :param path: as Airflow's ``ObjectStoragePath`` takes it.
    :param settings: the barrier's.
    :param run_started: start of the barrier's run; a file from more than a ceiling before is a leftover.
    :param consumed: ``dispatch_epoch`` values of which a barrier of an earlier run has seen the end.
    """

    path: str
    settings: BarrierSettings
    run_started: datetime
    consumed: frozenset[datetime] = frozenset()

    def look(self, group: TrackGroup, rows: Sequence[TrackRow], now: datetime) -> FileSighting:
        """Read the file; a last look reads one that is not whole up to twice more."""
        expected = [row.name for row in rows]
        reading = self._read(group, expected, now)
        for _ in range(2):
            is_last = now >= group.dispatched_at + self.settings.ceiling
            if not is_last or not isinstance(reading, UnknownThisTime):
                break
            time.sleep(READ_AGAIN.total_seconds())
            reading = self._read(group, expected, now)
        return _sighting(reading)

    def epoch(self, expected: Sequence[str], now: datetime) -> datetime | None:
        """The file's ``dispatch_epoch``, when it is there and belongs to this run."""
        reading = self._parse(expected, now, first_poll_at=now + self.settings.first_poll)
        return reading.dispatched_at if isinstance(reading, StatusRead) else None

    def _read(self, group: TrackGroup, expected: Sequence[str], now: datetime) -> StatusReading:
        return self._parse(
            expected,
            now,
            first_poll_at=group.dispatched_at + self.settings.first_poll,
            group=group,
        )

    def _parse(
        self,
        expected: Sequence[str],
        now: datetime,
        *,
        first_poll_at: datetime,
        group: TrackGroup | None = None,
    ) -> StatusReading:
        content = _content(self.path)
        if isinstance(content, UnknownThisTime):
            return content
        # A clear of a run that had failed gives it a new start, and its tracks have begun long before that.
        began = self.run_started if group is None else min(self.run_started, group.dispatched_at)
        reading = parse_status(
            content,
            expected=expected,
            now=now,
            first_poll_at=first_poll_at,
            dispatched_at=group.dispatched_at if group and group.clock is Clock.DISPATCH else None,
            oldest=began - self.settings.ceiling,
        )
        return self._refuse_leftover(reading, began)

    def _refuse_leftover(self, reading: StatusReading, began: datetime) -> StatusReading:
        """A file of an earlier run must not open the barrier of this one."""
        epoch = reading.dispatched_at if isinstance(reading, StatusRead) else None
        if epoch is None:
            return reading
        if epoch in self.consumed:
            return UnknownThisTime(
                f"the file belongs to an earlier run, whose barrier has waited for this dispatch of "
                f"{epoch.isoformat()}"
            )
        if epoch < began - self.settings.ceiling:
            return UnknownThisTime(
                f"the file belongs to an earlier run: its dispatch_epoch is {epoch.isoformat()}, more than a "
                f"ceiling before this run's start at {began.isoformat()}"
            )
        return reading


@dataclass(frozen=True)
class FileSighting:
    """What a status file said."""

    said: Mapping[str, TrackReport] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    epoch: datetime | None = None

    def reports(self, rows: Sequence[TrackRow]) -> Mapping[str, TrackReport]:  # noqa: ARG002
        """The file's reports. The runs that launched the tracks may be over long before them."""
        return self.said


def _sighting(reading: StatusReading) -> FileSighting:
    if isinstance(reading, UnknownThisTime):
        note = f"status file: {reading.reason}"
        if reading.normal:
            log.info("%s", note)
            return FileSighting()
        return FileSighting(notes=(note,))
    notes = list(reading.notes)
    said = {name: _bounded(name, report, notes) for name, report in reading.reports.items()}
    return FileSighting(said, tuple(notes), reading.dispatched_at)


def _bounded(name: str, report: TrackReport, notes: list[str]) -> TrackReport:
    """The report with details that the ledger can keep."""
    try:
        checked_result(dict(report.details), name)
    except TrackResultError as error:
        notes.append(f"track {name!r}: its further fields are left out: {error}")
        return replace(report, details={})
    return report


def _content(path: str) -> bytes | UnknownThisTime | None:
    from airflow.sdk import ObjectStoragePath  # noqa: PLC0415 - brings fsspec, which the ledger needs not

    try:
        with ObjectStoragePath(path).open("rb") as stream:  # type: ignore[no-untyped-call]
            content = bytes(stream.read(STATUS_FILE_LIMIT + 1))
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - each store has its own errors, and the next poll reads again
        return UnknownThisTime(f"could not be read: {type(error).__name__}: {error}")
    if len(content) > STATUS_FILE_LIMIT:
        return UnknownThisTime(f"larger than {STATUS_FILE_LIMIT} bytes, so it is no status file")
    return content

"""Tracks and polls: a track's end is final once it is written, and the poll log says what was seen when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, insert, select, update

from airflow_relay.core.barrier import (
    TERMINAL_PHASES,
    PollDecision,
    PollLogLine,
    TrackPhase,
    TrackReport,
    TrackResult,
)
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import polls, tracks
from airflow_relay.ledger.types import dump

RESULT_LIMIT: Final = 64 * 1024
"""Bytes of JSON that a track may report as its result; larger work goes to a file, and its path here."""


class TrackResultError(ValueError):
    """A track's result is not JSON, or too large. The track's end was not recorded."""


@dataclass(frozen=True, kw_only=True)
class TrackRow:
    """A track as the ledger knows it."""

    group_id: int
    name: str
    phase: TrackPhase
    dag_id: str | None
    run_id: str | None
    """The run that does its work: the dispatched one, or the one whose task has begun it."""
    task: str | None
    max_wallclock: timedelta | None
    triggered_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    result: Any

    @property
    def is_final(self) -> bool:
        """Whether it has ended, by its own report or by a poll."""
        return self.phase in TERMINAL_PHASES

    @property
    def may_be_dead(self) -> bool:
        """Whether there is a run to ask about: one that is known to exist, of a track that has not ended."""
        return not self.is_final and bool(self.triggered_at or self.started_at)

    def as_report(self, *, run_alive: bool | None = None) -> TrackReport:
        """What the ledger says of it at a poll."""
        return TrackReport(
            phase=self.phase,
            reason=self.reason,
            completed_at=self.finished_at,
            run_alive=run_alive,
            details={} if self.result is None else {"result": self.result},
        )

    def as_result(self) -> TrackResult:
        """Its end.

        :raises ValueError: it has not ended.
        """
        report = self.as_report()
        return TrackResult(self.name, self.phase, self.reason, self.finished_at, report.details)


def of_group(tx: Tx, group_id: int, *, lock: bool = False) -> list[TrackRow]:
    """A group's tracks by name; with ``lock`` nobody else reports or polls until the transaction ends."""
    query = select(tracks).where(tracks.c.group_id == group_id).order_by(tracks.c.name)
    return [_track(row) for row in tx.conn.execute(query.with_for_update() if lock else query)]


def mark_triggered(tx: Tx, group_id: int, name: str, now: datetime) -> None:
    """Airflow has the track's run: from now on a missing run is a dead one."""
    tx.conn.execute(
        update(tracks)
        .where(tracks.c.group_id == group_id, tracks.c.name == name, tracks.c.triggered_at.is_(None))
        .values(triggered_at=now)
    )


def begin(
    tx: Tx, group_id: int, name: str, *, dag_id: str, run_id: str, task: str, now: datetime
) -> TrackRow:
    """Record that a task has begun the track's work (again, after a retry).

    Returns the row as it is then; it is final when the track was given up meanwhile.
    """
    where = (tracks.c.group_id == group_id) & (tracks.c.name == name)
    row = tx.conn.execute(select(tracks).where(where).with_for_update()).one_or_none()
    values = {"phase": TrackPhase.RUNNING, "dag_id": dag_id, "run_id": run_id, "task": task}
    if row is None:
        made = insert(tracks).values(group_id=group_id, name=name, started_at=now, **values)
        return _track(tx.conn.execute(made.returning(tracks)).one())
    known = _track(row)
    if known.is_final:
        return known
    begun = update(tracks).where(where).values(started_at=known.started_at or now, **values)
    return _track(tx.conn.execute(begun.returning(tracks)).one())


def end(tx: Tx, group_id: int, result: TrackResult, *, now: datetime) -> bool:
    """Record a track's end; false when it had ended before: the first end stands.

    :raises TrackResultError: its result cannot be kept.
    """
    value = result.details.get("result") if set(result.details) <= {"result"} else dict(result.details)
    ended = tx.conn.execute(
        update(tracks)
        .where(
            tracks.c.group_id == group_id,
            tracks.c.name == result.name,
            tracks.c.phase.not_in(list(TERMINAL_PHASES)),
        )
        .values(
            phase=result.phase,
            reason=result.reason,
            finished_at=result.completed_at or now,
            result=checked_result(value, result.name),
        )
    )
    return ended.rowcount == 1


def carry_over(tx: Tx, group_id: int, former: TrackRow) -> None:
    """Give a track that has not begun in its group the end, and the task, that it had in an earlier one."""
    tx.conn.execute(
        update(tracks)
        .where(
            tracks.c.group_id == group_id, tracks.c.name == former.name, tracks.c.phase == TrackPhase.PENDING
        )
        .values(
            dag_id=former.dag_id,
            run_id=former.run_id,
            task=former.task,
            phase=former.phase,
            started_at=former.started_at,
            finished_at=former.finished_at,
            reason=former.reason,
            result=former.result,
        )
    )


def checked_result(value: Any, name: str) -> Any:
    """The value, when the ledger can keep it.

    :raises TrackResultError: it is not JSON or above :data:`RESULT_LIMIT`.
    """
    try:
        size = len(dump(value).encode())
    except (TypeError, ValueError) as error:
        raise TrackResultError(
            f"The result of track {name!r} is not JSON: {error}. Give plain values."
        ) from error
    if size > RESULT_LIMIT:
        raise TrackResultError(
            f"The result of track {name!r} has {size} bytes of JSON, {RESULT_LIMIT} are kept. "
            "Write it to a file and report the path."
        )
    return value


def record_poll(tx: Tx, group_id: int, decision: PollDecision, *, log: bool = True) -> tuple[str, ...]:
    """Write down what a poll found: ends that are new, and one line of the poll log.

    Call it on locked rows. Returns the tracks that this poll has tapped out.

    :param log: false leaves out the line, for a look before the first planned poll.
    """
    known = {row.name for row in of_group(tx, group_id) if row.is_final}
    new = {
        result.name
        for result in decision.results.values()
        if result.name not in known and end(tx, group_id, result, now=decision.polled_at)
    }
    tapped = tuple(result.name for result in decision.tapped if result.name in new)
    if log:
        line = decision.log_line()
        tx.conn.execute(
            insert(polls).values(
                group_id=group_id,
                at=decision.polled_at,
                phases=line["phases"],
                elapsed_h=repr(line["elapsed_h"]),
                done=int(line["done"]),
                tapped=list(tapped),
            )
        )
    return tapped


@dataclass(frozen=True)
class Poll:
    """A line of the poll log, and who was tapped out by it."""

    at: datetime
    phases: Mapping[str, str]
    elapsed_h: float
    done: bool
    tapped: tuple[str, ...]

    def log_line(self) -> PollLogLine:
        """The line as the poll log file has it."""
        return {
            "ts": self.at.timestamp(),
            "phases": dict(self.phases),
            "elapsed_h": self.elapsed_h,
            "done": self.done,
        }


def polls_of(tx: Tx, group_id: int) -> list[Poll]:
    """A group's poll log, oldest first."""
    rows = tx.conn.execute(select(polls).where(polls.c.group_id == group_id).order_by(polls.c.id))
    return [Poll(r.at, r.phases, float(r.elapsed_h), bool(r.done), tuple(r.tapped)) for r in rows]


def _track(row: Row[Any]) -> TrackRow:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public accessor
    seconds = values.pop("max_wallclock")
    return TrackRow(max_wallclock=None if seconds is None else timedelta(seconds=seconds), **values)

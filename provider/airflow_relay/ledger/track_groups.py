"""Groups of parallel tracks: recorded once at dispatch, which is where their clock starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final

from sqlalchemy import Row, Select, Table, delete, exists, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from airflow_relay.core.barrier import TERMINAL_PHASES, BarrierSettings, Track, TrackPhase
from airflow_relay.core.naming import slug
from airflow_relay.ledger import tracks
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.schema import polls, track_groups
from airflow_relay.ledger.schema import tracks as track_table

DEFAULT_GROUP: Final = "tracks"
"""The group's name where a DAG run has one barrier only."""

BATCH: Final = 500
"""Ids in one statement."""


class Clock(str, Enum):
    """What a group's dispatch time is."""

    DISPATCH = "dispatch"  # recorded by DispatchTracks, right before it started the tracks
    FIRST_LOOK = "first_look"  # nobody dispatched: the first of barrier and tracks that came by
    STATUS_FILE = "status_file"  # the dispatch_epoch of the status file


class DispatchConflictError(LedgerError, ValueError):
    """Two dispatches, or a dispatch and a barrier, mean different tracks by one group."""


@dataclass(frozen=True, kw_only=True)
class GroupPlace:
    """Which group: at most one is current for a DAG run and a name."""

    dag_id: str
    run_id: str
    name: str = DEFAULT_GROUP


@dataclass(frozen=True, kw_only=True)
class TrackGroup:
    """One dispatch."""

    id: int
    dag_id: str
    run_id: str
    name: str
    clear_number: int
    """The run's ``clear_number`` when the dispatch ran last; a larger one, after the end, dispatches anew."""
    dispatched_at: datetime
    settings: Mapping[str, Any] = field(hash=False)

    @property
    def clock(self) -> Clock:
        """What ``dispatched_at`` is."""
        return Clock(self.settings["clock"])


@dataclass(frozen=True, kw_only=True)
class NewTrack:
    """A track to be dispatched."""

    track: Track
    dag_id: str | None = None
    """The DAG of its run; ``None`` when the track runs elsewhere."""


def find(tx: Tx, place: GroupPlace) -> TrackGroup | None:
    """The current group: the newest dispatch of this run and name."""
    row = tx.conn.execute(_newest(place)).one_or_none()
    return None if row is None else _group(row)


def before(tx: Tx, group: TrackGroup) -> TrackGroup | None:
    """The group that this one has followed in the same run."""
    place = GroupPlace(dag_id=group.dag_id, run_id=group.run_id, name=group.name)
    row = tx.conn.execute(_newest(place).where(track_groups.c.id < group.id)).one_or_none()
    return None if row is None else _group(row)


def by_id(tx: Tx, group_id: int) -> TrackGroup:
    """The group of a row id.

    :raises LookupError: there is none: the row was cleaned away, or the ledger is another one.
    """
    row = tx.conn.execute(select(track_groups).where(track_groups.c.id == group_id)).one_or_none()
    if row is None:
        raise LookupError(f"The ledger has no track group {group_id}.")
    return _group(row)


def is_over(tx: Tx, group: TrackGroup) -> bool:
    """Whether every track of the group has ended."""
    return all(row.is_final for row in tracks.of_group(tx, group.id))


def record(
    tx: Tx,
    place: GroupPlace,
    wanted: Sequence[NewTrack],
    *,
    clear_number: int,
    clock: Clock,
    now: datetime,
) -> TrackGroup:
    """The group to dispatch, recorded once: a retry, and a clear while tracks run, get the same one back.

    A clear after all tracks have ended is a new dispatch, with a clock and runs of its own.

    :param now: the dispatch time, where a new group is made.
    :raises DispatchConflictError: this group was dispatched with other tracks.
    """
    known = find(tx, place)
    if known is None:
        return _make(tx, place, wanted, clear_number=clear_number, clock=clock, now=now)
    if clear_number > known.clear_number:
        if is_over(tx, known):
            return _make(tx, place, wanted, clear_number=clear_number, clock=clock, now=now)
        tx.conn.execute(
            update(track_groups).where(track_groups.c.id == known.id).values(clear_number=clear_number)
        )
        known = by_id(tx, known.id)
    _refuse_other(tx, known, wanted)
    return known


def open_undispatched(
    tx: Tx, place: GroupPlace, *, clear_number: int, clock: Clock, at: datetime
) -> TrackGroup:
    """The run's group, made with the clock at ``at`` where nobody has dispatched one."""
    return find(tx, place) or _make(tx, place, (), clear_number=clear_number, clock=clock, now=at)


def reopen_undispatched(tx: Tx, place: GroupPlace, *, clear_number: int, now: datetime) -> TrackGroup:
    """The group for tracks that are tasks of the barrier's own run and have begun.

    They begin again after a clear; when the clear came after all had ended, this is a new round. Only a new
    dispatch follows one that ``DispatchTracks`` has recorded.
    """
    known = open_undispatched(tx, place, clear_number=clear_number, clock=Clock.FIRST_LOOK, at=now)
    if known.clock is Clock.DISPATCH or clear_number <= known.clear_number or not is_over(tx, known):
        return known
    return _make(tx, place, (), clear_number=clear_number, clock=Clock.FIRST_LOOK, now=now)


def expect(tx: Tx, group: TrackGroup, expected: Iterable[Track]) -> None:
    """Make sure that each track of a barrier has its row.

    :raises DispatchConflictError: the group was dispatched, without one of these tracks: nobody would ever
        report it.
    """
    expected = list(expected)
    known = {row.name for row in tracks.of_group(tx, group.id)}
    missing = [track for track in expected if track.name not in known]
    if missing and group.clock is Clock.DISPATCH:
        raise DispatchConflictError(
            f"The barrier waits for {', '.join(t.name for t in missing)}, but run {group.run_id} of "
            f"{group.dag_id} dispatched {', '.join(sorted(known)) or 'nothing'} as {group.name!r}. "
            "Give DispatchTracks and TrackBarrierSensor the same tracks."
        )
    _insert_tracks(tx, group, [NewTrack(track=track) for track in missing])


def remember(tx: Tx, group: TrackGroup, **values: Any) -> TrackGroup:
    """Put values into the group's settings."""
    settings = {**group.settings, **values}
    tx.conn.execute(update(track_groups).where(track_groups.c.id == group.id).values(settings=settings))
    return by_id(tx, group.id)


def of_dag(tx: Tx, dag_id: str, *, name: str | None = None, limit: int = 1000) -> list[TrackGroup]:
    """A DAG's groups, newest first."""
    query = (
        select(track_groups)
        .where(track_groups.c.dag_id == dag_id)
        .order_by(track_groups.c.id.desc())
        .limit(limit)
    )
    if name is not None:
        query = query.where(track_groups.c.name == name)
    return [_group(row) for row in tx.conn.execute(query)]


def dags(tx: Tx) -> list[str]:
    """The DAGs that have groups, sorted."""
    query = select(track_groups.c.dag_id).distinct().order_by(track_groups.c.dag_id)
    return list(tx.conn.execute(query).scalars())


def over_before(before: datetime) -> Select[tuple[int]]:
    """The ids of groups dispatched before then of which every track has ended."""
    at_work = exists().where(
        track_table.c.group_id == track_groups.c.id, track_table.c.phase.not_in(list(TERMINAL_PHASES))
    )
    return select(track_groups.c.id).where(track_groups.c.dispatched_at < before, ~at_work)


def count_over(tx: Tx, before: datetime) -> int:
    """How many groups :func:`remove_over` would remove."""
    return int(tx.conn.execute(select(func.count()).select_from(over_before(before).subquery())).scalar_one())


def remove_over(tx: Tx, before: datetime) -> int:
    """Remove groups that were dispatched before then and are over, with their tracks and polls."""
    ids = list(tx.conn.execute(over_before(before)).scalars())
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        tx.conn.execute(delete(polls).where(polls.c.group_id.in_(batch)))
        tx.conn.execute(delete(track_table).where(track_table.c.group_id.in_(batch)))
        tx.conn.execute(delete(track_groups).where(track_groups.c.id.in_(batch)))
    return len(ids)


def consumed_epochs(tx: Tx, dag_id: str, status_path: str, *, but: str) -> frozenset[datetime]:
    """The dispatches in a status file that a barrier of this DAG has waited for to the end.

    :param but: the run to leave out.
    """
    earlier = [
        group
        for group in of_dag(tx, dag_id, limit=100)
        if group.run_id != but
        and group.settings.get("status_path") == status_path
        and "status_epoch" in group.settings
    ]
    return frozenset(
        datetime.fromisoformat(group.settings["status_epoch"]) for group in earlier if is_over(tx, group)
    )


def settings_json(settings: BarrierSettings) -> dict[str, float]:
    """Barrier settings as the group keeps them, in seconds."""
    return {
        "first_poll": settings.first_poll.total_seconds(),
        "poll_interval": settings.poll_interval.total_seconds(),
        "ceiling": settings.ceiling.total_seconds(),
    }


def settings_of(group: TrackGroup) -> BarrierSettings | None:
    """The inverse of :func:`settings_json`; ``None`` before the barrier's first look."""
    values = {n: group.settings[n] for n in ("first_poll", "poll_interval", "ceiling") if n in group.settings}
    return BarrierSettings(**values) if values else None


def track_run_id(place: GroupPlace, track: str, clear_number: int) -> str:
    """The run id of a track: the same for each send, unique to dispatch and track, within 250 characters."""
    # Airflow's ids hold no line break, so three of them joined by it are as unique as they are.
    where = f"{place.dag_id}\n{place.run_id}\n{place.name}"
    return f"relay-track:{slug(where)}:{slug(track)}:{clear_number}"


def _newest(place: GroupPlace) -> Select[Any]:
    return (
        select(track_groups)
        .where(
            track_groups.c.dag_id == place.dag_id,
            track_groups.c.run_id == place.run_id,
            track_groups.c.name == place.name,
        )
        .order_by(track_groups.c.id.desc())
        .limit(1)
    )


def _make(
    tx: Tx, place: GroupPlace, wanted: Sequence[NewTrack], *, clear_number: int, clock: Clock, now: datetime
) -> TrackGroup:
    row = {
        "dag_id": place.dag_id,
        "run_id": place.run_id,
        "name": place.name,
        "clear_number": clear_number,
        "dispatched_at": now,
        "settings": {"clock": clock.value},
    }
    insert_new(tx, track_groups, [row])
    group = find(tx, place)
    assert group is not None, "the row was inserted, here or by another process at the same time"
    _insert_tracks(tx, group, wanted)
    return group


def _insert_tracks(tx: Tx, group: TrackGroup, wanted: Sequence[NewTrack]) -> None:
    place = GroupPlace(dag_id=group.dag_id, run_id=group.run_id, name=group.name)
    rows = []
    for new in wanted:
        own = new.track.max_wallclock
        run_id = track_run_id(place, new.track.name, group.clear_number) if new.dag_id else None
        rows.append(
            {
                "group_id": group.id,
                "name": new.track.name,
                "phase": TrackPhase.PENDING,
                "dag_id": new.dag_id,
                "run_id": run_id,
                "max_wallclock": None if own is None else math.ceil(own.total_seconds()),
            }
        )
    insert_new(tx, track_table, rows)


def insert_new(tx: Tx, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those rows whose key is not taken; two processes may do so at once."""
    if not rows:
        return
    if tx.is_sqlite:
        tx.conn.execute(sqlite.insert(table).values(list(rows)).on_conflict_do_nothing())
    else:
        tx.conn.execute(postgresql.insert(table).values(list(rows)).on_conflict_do_nothing())


def _refuse_other(tx: Tx, group: TrackGroup, wanted: Sequence[NewTrack]) -> None:
    known = {row.name for row in tracks.of_group(tx, group.id)}
    unknown = [new.track.name for new in wanted if new.track.name not in known]
    if unknown or group.clock is not Clock.DISPATCH:
        raise DispatchConflictError(
            f"Run {group.run_id} of {group.dag_id} has a group {group.name!r} already, with the tracks "
            f"{', '.join(sorted(known)) or '(none)'}; now it would be {', '.join(unknown)} as well. Put the "
            "barrier behind its dispatch, and give a second dispatch of the same run another group=."
        )


def _group(row: Row[Any]) -> TrackGroup:
    return TrackGroup(
        id=row.id,
        dag_id=row.dag_id,
        run_id=row.run_id,
        name=row.name,
        clear_number=row.clear_number,
        dispatched_at=row.dispatched_at,
        settings=row.settings,
    )

"""Start parallel tracks, once: the dispatch time, the tracks and their budgets are recorded before."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from airflow.sdk.bases.operator import BaseOperator

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.barrier import (
    MAX_DURATION,
    BarrierSettings,
    BarrierSettingsError,
    Track,
    check_tracks,
)
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.ledger import get_ledger, wait_for_ledger
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.errors import LedgerUnreachableError
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import DEFAULT_GROUP, Clock, GroupPlace, NewTrack, TrackGroup
from airflow_relay.ledger.tracks import TrackRow
from airflow_relay.operators.guard import clear_number
from airflow_relay.tracks import TrackIds

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrackRun(Track):
    """A track and the DAG whose run does its work.

    :param name: unique among the tracks of a dispatch.
    :param dag_id: the DAG to start one run of.
    :param conf: handed to the run as it is, beside the track's ids. It is shown in Airflow's UI: no secrets.
    :param max_wallclock: the track's own budget from dispatch, in whole seconds (a part counts as one).
    """

    name: str
    dag_id: str
    max_wallclock: timedelta | None = None
    conf: Mapping[str, Any] = field(default_factory=dict, hash=False)


class DispatchTracks(BaseOperator):
    """Record one dispatch of tracks, then start a run for each.

    Idempotent: a retry, and a clear while tracks are at work, start what is not started yet and leave the
    clock alone. A clear after all tracks have ended dispatches them anew, with a clock and runs of its own.

    :param tracks: what to start, as :class:`TrackRun`.
    :param group: tells two dispatches of one DAG run apart; the barrier names the same.
    :raises BarrierSettingsError: at parse: a repeated name, or an impossible ``max_wallclock``.
    """

    ui_color = "#e6f1f2"

    def __init__(self, *, tracks: Sequence[TrackRun], group: str = DEFAULT_GROUP, **kwargs: Any) -> None:
        for track in tracks:
            if not isinstance(track, TrackRun):
                raise BarrierSettingsError("tracks", f"{track!r} names no DAG to run: give TrackRun values")
        check_tracks(tracks, BarrierSettings(ceiling=MAX_DURATION))
        asked = {**kwargs.get("default_args", {}), **kwargs}
        own: dict[str, Any] = {"retries": 5, "retry_delay": timedelta(seconds=10)}
        kwargs.update({name: value for name, value in own.items() if asked.get(name) is None})
        super().__init__(**kwargs)
        self.tracks = tuple(tracks)
        self.group = group

    @property
    def dispatched_dags(self) -> frozenset[str]:
        """DAGs of which it starts runs; a stage whose barrier waits for them is checked at parse."""
        return frozenset(t.dag_id for t in self.tracks)

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Dispatch. Returns the group, its dispatch time and the run ids.

        :raises TargetDagError: at least one DAG is missing or broken. The other tracks were started, and the
            clock runs; a retry starts the rest.
        :raises DispatchConflictError: the DAG run has dispatched other tracks under this group's name.
        """
        try:
            return self._dispatch(context)
        except LedgerUnreachableError as error:
            raise wait_for_ledger(error) from error

    def _dispatch(self, context: Mapping[str, Any]) -> dict[str, Any]:
        ledger, run = get_ledger(), context["dag_run"]
        place = GroupPlace(dag_id=run.dag_id, run_id=run.run_id, name=self.group)
        with ledger.write() as tx:
            group = track_groups.record(
                tx,
                place,
                [NewTrack(track=t, dag_id=t.dag_id) for t in self.tracks],
                clear_number=clear_number(context),
                clock=Clock.DISPATCH,
                now=utcnow(),
            )
            rows = {row.name: row for row in tracks.of_group(tx, group.id)}
        crash_point(CrashPoint.TRACKS_RECORDED)
        self._start_all(ledger, group, rows)
        return {
            "group": group.id,
            "dispatched_at": group.dispatched_at.isoformat(),
            "runs": {name: row.run_id for name, row in rows.items()},
        }

    def _start_all(self, ledger: Ledger, group: TrackGroup, rows: Mapping[str, TrackRow]) -> None:
        failures: list[compat.TargetDagError] = []
        for track in self.tracks:
            row = rows[track.name]
            if row.triggered_at is not None:
                continue
            try:
                self._start(ledger, group, track, row)
            except compat.TargetDagError as error:
                log.error("Track %r: %s", track.name, error)  # noqa: TRY400 - raised below
                failures.append(error)
        if failures:
            raise failures[0]

    def _start(self, ledger: Ledger, group: TrackGroup, track: TrackRun, row: TrackRow) -> None:
        ids = TrackIds(group=group.id, track=track.name, ledger=ledger.ledger_id)
        assert row.run_id is not None
        new = compat.trigger_dag_run(
            dag_id=track.dag_id,
            run_id=row.run_id,
            conf={**track.conf, **ids.to_conf()},
            note=f"Relay: a track of {group.dag_id} / {group.run_id}",
        )
        crash_point(CrashPoint.TRACKS_TRIGGERED)
        with ledger.write() as tx:
            tracks.mark_triggered(tx, group.id, track.name, utcnow())
        log.info("%s track %r: %s / %s", "Started" if new else "Found", track.name, track.dag_id, row.run_id)
        if compat.is_dag_paused(track.dag_id):
            log.warning("DAG %r is paused: track %r waits until it is unpaused.", track.dag_id, track.name)

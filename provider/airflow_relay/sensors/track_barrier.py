"""The barrier: succeeds at the first poll at which all tracks have ended, or at the ceiling."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Final

from airflow.sdk import BaseSensorOperator, XComArg
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_relay import compat
from airflow_relay.clock import airflow_time, utcnow
from airflow_relay.core.barrier import (
    BarrierSettings,
    BarrierSettingsError,
    Decision,
    ForceProceed,
    Track,
    TrackPhase,
    TrackResult,
    Wait,
    as_duration,
    check_tracks,
    poll,
)
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.ledger import get_ledger, wait_for_ledger
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import LedgerUnreachableError
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import (
    DEFAULT_GROUP,
    Clock,
    DispatchConflictError,
    GroupPlace,
    TrackGroup,
)
from airflow_relay.ledger.tracks import TrackRow
from airflow_relay.operators.guard import clear_number
from airflow_relay.sensors.poll_log import append_poll
from airflow_relay.sensors.track_rounds import carry_over, is_to_run_again
from airflow_relay.sensors.track_sources import LedgerSource, Sighting, StatusFileSource, TrackSource

log: Final = logging.getLogger(__name__)

MOST_NOTES: Final = 100
LONGEST_NOTE: Final = 4000
"""Lines and characters of what is odd about one poll: a status file is foreign, and may be large."""

_REFUSED: Final = {
    "soft_fail": "a barrier does not fail for a slow track, it taps it out",
    "never_fail": "an error would skip the consolidation behind the barrier",
    "silent_fail": "an error of a poll would go unseen; failed polls are retried",
    "exponential_backoff": "polls stand on a grid; set poll_interval",
    "max_wait": "polls stand on a grid; set poll_interval",
    "poke_interval": "polls stand on a grid from the dispatch on; set poll_interval",
    "deferrable": "it frees its worker slot between polls by itself",
}


class TrackBarrierSensor(BaseSensorOperator):
    """Wait until every track has ended, but not longer than the ceiling; then succeed.

    Polls stand at ``first_poll``, ``first_poll + poll_interval``, … after the recorded dispatch, the last one
    at the ceiling. Between them the task is rescheduled and holds no worker. What is known lives in the
    ledger, so a retry, a clear while tracks run, a lost worker or a restart moves neither clock nor results.

    At each poll: all tracks ended → succeed now. A track whose run is gone without a report, or that is past
    its own ``max_wallclock``, is tapped out. At the ceiling the rest is, and the barrier succeeds.

    Cleared after its end it succeeds again at once, with the same results. A new wait needs a new dispatch:
    clear ``DispatchTracks`` too, or for tracks that are tasks of this run, clear those.

    :param tracks: names, :class:`~airflow_relay.core.barrier.Track` or ``TrackRun`` values; with none it
        succeeds at once.
    :param first_poll: from the dispatch to the first poll; timedelta or seconds.
    :param poll_interval: between polls, at least one second.
    :param ceiling: from the dispatch to the latest end of the wait.
    :param status_path: a ``status.json`` that programs outside Airflow write, in place of reports to the
        ledger: an absolute path, or a URL of any store that Airflow's ``ObjectStoragePath`` reads. Templated.
        Without a ``DispatchTracks`` before it the clock starts at the file's ``dispatch_epoch``, if it is
        there at the first look, else then.
    :param poll_log_path: where each poll is appended as a JSON line (``ts``, ``phases``, ``elapsed_h``,
        ``done``); a path as above. Templated. The ledger has the polls in any case.
    :param group: tells two barriers of one DAG run apart; the dispatch names the same.
    :param kwargs: of ``BaseOperator``. ``mode`` is always ``"reschedule"``; ``timeout`` may not lie below the
        ceiling; ``execution_timeout`` limits one poll.
    :raises BarrierSettingsError: at parse, for settings that are impossible or contradict each other.
    """

    template_fields: Sequence[str] = ("status_path", "poll_log_path")
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        tracks: Sequence[str | Track],
        first_poll: timedelta | float = timedelta(hours=3),
        poll_interval: timedelta | float = timedelta(minutes=30),
        ceiling: timedelta | float = timedelta(hours=14),
        status_path: str | PurePath | XComArg | None = None,
        poll_log_path: str | PurePath | XComArg | None = None,
        group: str = DEFAULT_GROUP,
        **kwargs: Any,
    ) -> None:
        self.barrier = BarrierSettings(first_poll=first_poll, poll_interval=poll_interval, ceiling=ceiling)
        if isinstance(tracks, str):
            raise BarrierSettingsError("tracks", f"{tracks!r} is one text; give a list of names")
        self.tracks = tuple(Track(track) if isinstance(track, str) else track for track in tracks)
        check_tracks(self.tracks, self.barrier)
        self.status_path = _location("status_path", status_path)
        self.poll_log_path = _location("poll_log_path", poll_log_path)
        self.group = group
        self._is_by_file, self._is_logged = status_path is not None, poll_log_path is not None
        asked = {**kwargs.get("default_args", {}), **kwargs}
        _refuse_contradictions(asked, self.barrier)
        own: dict[str, Any] = {
            "timeout": self.barrier.ceiling + self.barrier.poll_interval,
            "retries": 5,
            "retry_delay": timedelta(seconds=30),
        }
        kwargs.update({name: value for name, value in own.items() if asked.get(name) is None})
        kwargs.update(mode="reschedule", poke_interval=self.barrier.poll_interval)
        super().__init__(**kwargs)

    @property
    def waits_for_dags(self) -> frozenset[str]:
        """DAGs whose runs it waits for, as far as the tracks name them; checked in a stage at parse."""
        return waited_dags(self.tracks)

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once. Returns what :func:`outcome` describes.

        :raises AirflowRescheduleException: look again at the next instant of the grid.
        :raises DispatchConflictError: the barrier waits for a track that was not dispatched, or a second
            barrier of this run and group reads another status file.
        :raises BarrierSettingsError: a template was rendered to what is no absolute path.
        """
        if self._is_by_file:
            self.status_path = _location("status_path", str(self.status_path))
        if self._is_logged:
            self.poll_log_path = _location("poll_log_path", str(self.poll_log_path))
        if not self.tracks:
            log.info("There are no tracks to wait for.")
            return {"outcome": "proceed", "elapsed_h": 0.0, "tracks": {}, "tapped_out": {}}
        try:
            return self._look(context)
        except LedgerUnreachableError as error:
            raise wait_for_ledger(error) from error

    def _look(self, context: Mapping[str, Any]) -> dict[str, Any]:
        ledger, now = get_ledger(), utcnow()
        source = self._source(ledger, context)
        group, rows = self._group(ledger, context, source, now)
        rows = carry_over(ledger, group, rows, now)
        crash_point(CrashPoint.BARRIER_LOOKED)
        sighting = source.look(group, rows, now)
        decision, recorded = self._poll(ledger, group, sighting, utcnow())
        crash_point(CrashPoint.BARRIER_POLLED)
        if recorded and self.poll_log_path is not None:
            append_poll(self.poll_log_path, decision.log_line())
        _tell(decision, sighting.notes)
        if isinstance(decision, Wait):
            raise AirflowRescheduleException(airflow_time(decision.until))  # type: ignore[no-untyped-call]
        return outcome(decision)

    def _poll(
        self, ledger: Ledger, group: TrackGroup, sighting: Sighting, now: datetime
    ) -> tuple[Decision, bool]:
        """Decide on locked rows and write down what was found, in one transaction."""
        with ledger.write() as tx:
            rows = tracks.of_group(tx, group.id, lock=True)
            budgets = {row.name: row.max_wallclock for row in rows if row.max_wallclock is not None}
            decision = poll(
                [replace_budget(track, budgets.get(track.name)) for track in self.tracks],
                group.dispatched_at,
                now,
                self.barrier,
                reports=sighting.reports(rows),
                finished={row.name: row.as_result() for row in rows if row.is_final},
            )
            is_early = now < group.dispatched_at + self.barrier.first_poll
            recorded = not (is_early and isinstance(decision, Wait) and not decision.tapped)
            tracks.record_poll(tx, group.id, decision, log=recorded)
            was_open = any(not row.is_final for row in rows)  # later on the file may be of another run
            if sighting.epoch is not None and was_open:
                track_groups.remember(tx, group, status_epoch=sighting.epoch.isoformat())
        return decision, recorded

    def _source(self, ledger: Ledger, context: Mapping[str, Any]) -> TrackSource:
        if self.status_path is None:
            return LedgerSource()
        run = context["dag_run"]
        with ledger.read() as tx:
            consumed = track_groups.consumed_epochs(tx, run.dag_id, self.status_path, but=run.run_id)
        return StatusFileSource(
            path=self.status_path,
            settings=self.barrier,
            run_started=getattr(run, "start_date", None) or utcnow(),
            consumed=consumed,
        )

    def _group(
        self, ledger: Ledger, context: Mapping[str, Any], source: TrackSource, now: datetime
    ) -> tuple[TrackGroup, list[TrackRow]]:
        """The group whose clock counts, and its tracks; made here when nobody has dispatched."""
        run = context["dag_run"]
        place = GroupPlace(dag_id=run.dag_id, run_id=run.run_id, name=self.group)
        with ledger.read() as tx:
            known = track_groups.find(tx, place)
            rows = [] if known is None else tracks.of_group(tx, known.id)
        if known is not None and self._is_prepared(known, rows):
            if not is_to_run_again(known, rows, context):
                return known, rows
            with ledger.write() as tx:
                known = track_groups.reopen_undispatched(
                    tx, place, clear_number=clear_number(context), now=now
                )
        epoch = None
        if known is None and isinstance(source, StatusFileSource):
            epoch = source.epoch([track.name for track in self.tracks], now)
        with ledger.write() as tx:
            group = known or track_groups.open_undispatched(
                tx,
                place,
                clear_number=clear_number(context),
                clock=Clock.FIRST_LOOK if epoch is None else Clock.STATUS_FILE,
                at=epoch or now,
            )
            return self._prepare(tx, group, compat.task_key(context["ti"]))

    def _is_prepared(self, group: TrackGroup, rows: Sequence[TrackRow]) -> bool:
        names = {row.name for row in rows}
        return self._own_settings().items() <= group.settings.items() and all(
            track.name in names for track in self.tracks
        )

    def _prepare(self, tx: Tx, group: TrackGroup, task: str) -> tuple[TrackGroup, list[TrackRow]]:
        track_groups.expect(tx, group, self.tracks)
        known = group.settings
        if known.get("barrier", task) != task and known.get("status_path") != self.status_path:
            raise DispatchConflictError(
                f"{known['barrier']} waits by {known.get('status_path') or 'the ledger'}, {task} by "
                f"{self.status_path or 'the ledger'}, and the ends of one would count for both: give each a "
                "group= of its own."
            )
        group = track_groups.remember(tx, group, barrier=task, **self._own_settings())
        return group, tracks.of_group(tx, group.id)

    def _own_settings(self) -> dict[str, Any]:
        return {**track_groups.settings_json(self.barrier), "status_path": self.status_path}


def outcome(decision: Decision) -> dict[str, Any]:
    """What the barrier pushes to XCom.

    ``outcome``: ``proceed``, or ``force_proceed`` when the ceiling opened it. ``elapsed_h``: hours since the
    dispatch. ``tracks``: name → ``phase``, ``reason``, ``completed_at`` (ISO 8601, UTC) and ``result``.
    ``tapped_out``: name → reason, of each track that did not complete, whoever tapped it out.
    """
    forced = isinstance(decision, ForceProceed)
    return {
        "outcome": "force_proceed" if forced else "proceed",
        "elapsed_h": decision.elapsed_h,
        "tracks": {name: _track_json(result) for name, result in decision.results.items()},
        "tapped_out": {
            name: result.reason
            for name, result in decision.results.items()
            if result.phase is TrackPhase.TAPPED_OUT
        },
    }


def waited_dags(waited: Sequence[Any]) -> frozenset[str]:
    """The DAGs that tracks name, of a barrier's ``tracks`` argument."""
    return frozenset(dag_id for track in waited if (dag_id := getattr(track, "dag_id", None)))


def replace_budget(track: Track, recorded: timedelta | None) -> Track:
    """The track with the budget that was recorded at dispatch, where there is one."""
    return track if recorded is None else replace(track, max_wallclock=recorded)


def _track_json(result: TrackResult) -> dict[str, Any]:
    details = dict(result.details)
    return {
        "phase": result.phase.value,
        "reason": result.reason,
        "completed_at": None if result.completed_at is None else result.completed_at.isoformat(),
        "result": details.get("result") if set(details) <= {"result"} else details,
    }


def _tell(decision: Decision, notes: Sequence[str]) -> None:
    notes = (*notes, *decision.notes)
    for note in notes[:MOST_NOTES]:
        log.warning("%.*s", LONGEST_NOTE, note)
    if len(notes) > MOST_NOTES:
        log.warning("%d more notes are left out.", len(notes) - MOST_NOTES)
    for result in decision.tapped:
        log.warning("Track %r is tapped out: %s", result.name, result.reason)
    phases = ", ".join(f"{name} {phase.value}" for name, phase in decision.phases.items())
    after = f"{decision.elapsed_h:.2f} h after the dispatch: {phases}."
    if isinstance(decision, Wait):
        log.info("%s Next poll at %s.", after, decision.until.isoformat())
    else:
        log.info("%s The barrier opens.", after)


def _location(field: str, value: Any) -> Any:
    if value is None or isinstance(value, XComArg):  # which makes a dependency of the task behind it
        return value
    text = str(value)
    if not (text.startswith(("/", "{{")) or "://" in text):
        raise BarrierSettingsError(
            field,
            f"{text!r} is relative, and a task's working directory can be any; give an absolute path or URL",
        )
    return text


def _refuse_contradictions(kwargs: Mapping[str, Any], settings: BarrierSettings) -> None:
    for name, why in _REFUSED.items():
        if kwargs.get(name):
            raise BarrierSettingsError(name, f"{kwargs[name]!r} does not fit a barrier: {why}")
    mode = kwargs.get("mode", "reschedule")
    if mode != "reschedule":
        raise BarrierSettingsError("mode", f"{mode!r} would hold a worker for hours; leave it out")
    if kwargs.get("timeout") is None:
        return
    timeout = as_duration("timeout", kwargs["timeout"])
    if timeout < settings.ceiling:
        raise BarrierSettingsError(
            "timeout",
            f"{timeout} lies below the ceiling of {settings.ceiling}, which is the limit; leave it out",
        )

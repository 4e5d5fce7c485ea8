"""What `airflow relay tracks advise` says: barrier settings from the recorded durations of earlier runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_relay.core.advice import Advice, TrackDuration, advise
from airflow_relay.core.barrier import BarrierSettings
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.store import Ledger

RUNS_LOOKED_AT: Final = 200
"""Newest dispatches only: how long work took a year ago says little."""


class NoTracksRecordedError(LookupError):
    """The ledger knows no dispatch of this DAG (and group)."""


@dataclass(frozen=True)
class RecordedRuns:
    """What the ledger has of a DAG's earlier dispatches."""

    durations: tuple[TrackDuration, ...]
    current: BarrierSettings | None
    """The settings of the newest dispatch whose barrier has looked; ``None`` when none has."""


def recorded_runs(
    ledger: Ledger, dag_id: str, *, group: str | None = None, limit: int = RUNS_LOOKED_AT
) -> RecordedRuns:
    """Read how long the tracks of a DAG took.

    :param group: the barrier's ``group``, where the DAG has more than one.
    :param limit: of dispatches, the newest.
    :raises NoTracksRecordedError: nothing is recorded; names the DAGs that have barriers.
    """
    with ledger.read() as tx:
        groups = track_groups.of_dag(tx, dag_id, name=group, limit=limit)
        if not groups:
            known = ", ".join(track_groups.dags(tx)) or "none"
            named = f" and group {group!r}" if group else ""
            raise NoTracksRecordedError(
                f"No dispatch of tracks is recorded for DAG {dag_id!r}{named}. DAGs with barriers: {known}."
            )
        durations = tuple(
            TrackDuration(
                run=f"{one.run_id}#{one.id}",
                track=row.name,
                phase=row.phase,
                duration=row.finished_at - one.dispatched_at,
                reason=row.reason,
            )
            for one in groups
            for row in tracks.of_group(tx, one.id)
            if row.is_final and row.finished_at is not None
        )
    settings = (track_groups.settings_of(one) for one in groups)
    return RecordedRuns(durations, next((found for found in settings if found is not None), None))


def advise_from_ledger(ledger: Ledger, dag_id: str, *, group: str | None = None) -> Advice:
    """Propose first poll, interval and ceiling for the barrier of a DAG.

    :raises NoTracksRecordedError: see :func:`recorded_runs`.
    """
    found = recorded_runs(ledger, dag_id, group=group)
    return advise(found.durations, current=found.current)

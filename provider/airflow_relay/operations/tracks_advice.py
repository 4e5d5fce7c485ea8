"""What `airflow relay tracks advise` says: barrier settings from the recorded durations of earlier runs."""

from __future__ import annotations

from airflow_relay.core.advice import Advice, TrackDuration, advise
from airflow_relay.core.barrier import BarrierSettings
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.store import Ledger

RUNS_LOOKED_AT = 200
"""Newest dispatches only: how long work took a year ago says little."""


class NoTracksRecordedError(LookupError):
    """The ledger knows no dispatch of this DAG (and group)."""


def advise_from_ledger(ledger: Ledger, dag_id: str, *, group: str | None = None) -> Advice:
    """Propose first poll, interval and ceiling for the barrier of a DAG.

    :param dag_id: the DAG that holds the barrier.
    :param group: the barrier's ``group``, where the DAG has more than one.
    :raises NoTracksRecordedError: nothing is recorded; names the DAGs that have barriers.
    """
    with ledger.read() as tx:
        groups = track_groups.of_dag(tx, dag_id, name=group, limit=RUNS_LOOKED_AT)
        if not groups:
            known = ", ".join(track_groups.dags(tx)) or "none"
            raise NoTracksRecordedError(
                f"No dispatch of tracks is recorded for DAG {dag_id!r}"
                f"{f' and group {group!r}' if group else ''}. DAGs with barriers: {known}."
            )
        records = [
            TrackDuration(
                run=str(one.id),
                track=row.name,
                phase=row.phase,
                duration=row.finished_at - one.dispatched_at,
                reason=row.reason,
            )
            for one in groups
            for row in tracks.of_group(tx, one.id)
            if row.is_final and row.finished_at is not None
        ]
    current: BarrierSettings | None = next(
        (settings for one in groups if (settings := track_groups.settings_of(one)) is not None), None
    )
    return advise(records, current=current)

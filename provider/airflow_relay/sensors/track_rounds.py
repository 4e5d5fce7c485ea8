"""Tracks that are tasks of the barrier's own run, cleared after all had ended: which of them begin again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_relay import compat
from airflow_relay.core.barrier import TrackPhase
from airflow_relay.core.completion import ENDED_STATES
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import Clock, TrackGroup
from airflow_relay.ledger.tracks import TrackRow
from airflow_relay.operators.guard import clear_number


def is_to_run_again(group: TrackGroup, rows: Sequence[TrackRow], context: Mapping[str, Any]) -> bool:
    """Whether a clear after the end lets tracks begin again that are tasks of this very run.

    They may not have begun yet when the barrier, cleared with them, looks first.
    """
    own = _own(group, rows)
    is_cleared = clear_number(context) > group.clear_number and all(row.is_final for row in rows)
    if not own or not is_cleared:
        return False
    states = _states(group)
    return any(states.get(row.task) not in ENDED_STATES for row in own)


def carry_over(ledger: Ledger, group: TrackGroup, rows: list[TrackRow], now: datetime) -> list[TrackRow]:
    """Give tracks whose tasks were not cleared with the others the end of the round before: it stands.

    One that had completed and whose task has now failed before its ``track()`` counts as begun: it is dead.
    """
    waiting = {row.name for row in rows if not row.is_final and row.started_at is None}
    if group.clock is not Clock.FIRST_LOOK or not waiting:
        return rows
    with ledger.read() as tx:
        former = track_groups.before(tx, group)
        known = [] if former is None else _own(former, tracks.of_group(tx, former.id))
    known = [row for row in known if row.is_final and row.name in waiting]
    if not known:
        return rows
    states = _states(group)
    with ledger.write() as tx:
        for row in known:
            state = states.get(row.task)
            if state not in ENDED_STATES:
                continue
            if state == "success" or row.phase is TrackPhase.TAPPED_OUT:
                tracks.carry_over(tx, group.id, row)
            else:
                where = {"dag_id": group.dag_id, "run_id": group.run_id, "task": str(row.task)}
                tracks.begin(tx, group.id, row.name, now=now, **where)
        return tracks.of_group(tx, group.id)


def _own(group: TrackGroup, rows: Sequence[TrackRow]) -> list[TrackRow]:
    return [row for row in rows if row.run_id == group.run_id and row.dag_id == group.dag_id and row.task]


def _states(group: TrackGroup) -> Mapping[str | None, str]:
    found = compat.task_states(group.dag_id, [group.run_id]).get(group.run_id, {})
    return {task: str(state) for task, state in found.items()}

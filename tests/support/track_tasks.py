"""Barriers, dispatches and tracks without an Airflow: contexts, a clock, and Airflow's answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_relay import compat, tracks
from airflow_relay.ledger import track_groups
from airflow_relay.ledger import tracks as track_rows
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import GroupPlace, TrackGroup
from airflow_relay.ledger.tracks import Poll, TrackRow
from airflow_relay.operators import dispatch_tracks
from airflow_relay.sensors import track_barrier

DISPATCH = datetime(2026, 4, 21, 22, tzinfo=timezone.utc)
OWN = ("night", "run-1")


class FakeAirflow:
    """What the barrier's ring sees of Airflow, and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
        self.ledger = ledger
        self.now = DISPATCH
        self.clear_number = 0
        self.states: dict[tuple[str, str], dict[str, str | None]] = {}
        self.triggered: list[tuple[str, str, dict[str, Any]]] = []
        self.missing: set[str] = set()
        self.paused: set[str] = set()
        self.asked: list[str] = []
        for module in (tracks, dispatch_tracks, track_barrier):
            monkeypatch.setattr(module, "get_ledger", lambda: ledger)
            monkeypatch.setattr(module, "utcnow", lambda: self.now)
        monkeypatch.setattr(compat, "task_states", self.task_states)
        monkeypatch.setattr(compat, "trigger_dag_run", self.trigger)
        monkeypatch.setattr(compat, "is_dag_paused", lambda dag_id: dag_id in self.paused)

    def task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, dict[str, Any]]:
        self.asked.append(dag_id)
        return {r: self.states[dag_id, r] for r in run_ids if (dag_id, r) in self.states}

    def trigger(self, *, dag_id: str, run_id: str, conf: dict[str, Any], note: str | None = None) -> bool:
        assert note is not None
        if dag_id in self.missing:
            raise compat.TargetDagError(f"DAG {dag_id!r} does not exist.")
        if (dag_id, run_id) in self.states:
            return False
        self.states[dag_id, run_id] = {"work": None}
        self.triggered.append((dag_id, run_id, conf))
        return True

    def at(self, **elapsed: float) -> datetime:
        """Set the clock to so long after the dispatch."""
        self.now = DISPATCH + timedelta(**elapsed)
        return self.now

    def context(
        self,
        *,
        conf: Mapping[str, Any] | None = None,
        run: tuple[str, str] = OWN,
        task: str = "work",
        map_index: int = -1,
        should_retry: bool = False,
        start: datetime = DISPATCH,
    ) -> dict[str, Any]:
        """A task's context."""
        server = SimpleNamespace(should_retry=should_retry, max_tries=int(should_retry))
        return {
            "dag_run": SimpleNamespace(
                dag_id=run[0],
                run_id=run[1],
                conf=dict(conf or {}),
                clear_number=self.clear_number,
                start_date=start,
            ),
            "ti": SimpleNamespace(
                task_id=task,
                map_index=map_index,
                try_number=1,
                task=SimpleNamespace(retry_policy=None),
                _ti_context_from_server=server,
            ),
        }

    def poke(self, sensor: Any, **context: Any) -> dict[str, Any] | datetime:
        """One execution: what it pushes, or when it wants to look again."""
        try:
            result: dict[str, Any] = sensor.execute(self.context(task="barrier", **context))
        except AirflowRescheduleException as again:
            when: datetime = again.reschedule_date
            return when
        return result

    def group(self, name: str = track_groups.DEFAULT_GROUP) -> TrackGroup:
        with self.ledger.read() as tx:
            found = track_groups.find(tx, GroupPlace(dag_id=OWN[0], run_id=OWN[1], name=name))
        assert found is not None
        return found

    def rows(self) -> dict[str, TrackRow]:
        group = self.group()
        with self.ledger.read() as tx:
            return {row.name: row for row in track_rows.of_group(tx, group.id)}

    def polls(self) -> list[Poll]:
        group = self.group()
        with self.ledger.read() as tx:
            return track_rows.polls_of(tx, group.id)

"""What tests that let processes die and time pass on a real Airflow share."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import select

from airflow_relay.clock import OFFSET_VARIABLE
from airflow_relay.core.completion import HAND_OFF_TASK_ID
from airflow_relay.core.item import replay
from airflow_relay.core.states import EventKind, RunResult, RunState
from airflow_relay.crash import CRASH_VARIABLE, CrashPoint
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.schema import runs as run_table
from airflow_relay.ledger.schema import slots
from integration.relay_on_airflow import RelayOnAirflow

SWEEP_DAG = "relay__recovery"
TICK_DAG = "relay__dispatch"
ADMIN_DAG = "relay__admin"


class Switches:
    """What the next task processes find in their environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "switches"
        self.folder.mkdir(exist_ok=True)

    def die_once_at(self, point: CrashPoint) -> Path:
        """The next process that comes to this point dies; returns the file that appears then."""
        memory = self.home / f"died-{uuid.uuid4().hex}"
        self._set(CRASH_VARIABLE, f"{point.value}@{memory}")
        return memory

    def clock_ahead(self, by: timedelta) -> None:
        self._set(OFFSET_VARIABLE, str(by.total_seconds()))

    def clock_at(self, instant: datetime) -> None:
        """The clock goes on from this instant."""
        self.clock_ahead(instant - datetime.now(timezone.utc))

    def clear(self) -> None:
        for file in self.folder.glob("RELAY_*"):
            file.unlink()

    def _set(self, name: str, value: str) -> None:
        """A task process that starts at this moment reads the old value or the new one, never half of it."""
        new = self.folder / f"new-{name}"
        new.write_text(value)
        new.replace(self.folder / name)


def tomorrow(hour: int) -> datetime:
    """An instant ahead from which a simulated day can pass without a change of date."""
    day = datetime.now(timezone.utc) + timedelta(days=1)
    return day.replace(hour=hour, minute=0, second=0, microsecond=0)


def quiet(relay: RelayOnAirflow) -> None:
    """Wait until the tick and the sweep that Airflow starts at once, for a new schedule, have ended."""
    for dag_id in (TICK_DAG, SWEEP_DAG):

        def has_run(dag_id: str = dag_id) -> bool:
            states = [run["state"] for run in relay.api.list_runs(dag_id)]
            return bool(states) and set(states) <= {"success", "failed"}

        relay.airflow.wait(has_run, what=f"the first run of {dag_id} to end", timeout=180)


def run_dag(relay: RelayOnAirflow, dag_id: str, conf: dict[str, Any] | None = None) -> str:
    """Trigger a DAG and wait for its success; returns the run id."""
    run_id = relay.api.trigger_dag(dag_id, conf)
    run = relay.airflow.wait_for_run(dag_id, run_id, timeout=300)
    assert run["state"] == "success", relay.api.task_states(dag_id, run_id)
    return run_id


def sweep(relay: RelayOnAirflow) -> dict[str, int]:
    """One sweep to its end; returns what it decided: action → number of items."""
    run_id = run_dag(relay, SWEEP_DAG)
    return dict(relay.api.xcom(SWEEP_DAG, run_id, "decide")["counts"])


def later(relay: RelayOnAirflow, switches: Switches, **delta: float) -> None:
    """Let time pass for Relay, then one tick come."""
    switches.clock_ahead(timedelta(**delta))
    run_dag(relay, TICK_DAG)


def assert_whole(relay: RelayOnAirflow, key: str, stages: tuple[str, ...]) -> None:
    """The item went through each stage by one successful run, handed off once; its log gives its row."""
    item = relay.item(key)
    assert item is not None
    with relay.ledger.read() as tx:
        log = items.log_of(tx, item.id)
    assert replay(item.id, log) == item, "row and log disagree"
    granted = relay.runs(key)
    assert {run.state for run in granted} == {RunState.CLOSED}
    assert [run.epoch for run in granted] == list(range(1, len(granted) + 1))
    assert [run.stage for run in granted if run.result is RunResult.SUCCESS] == list(stages)
    told = Counter((event.kind, event.run) for event in log)
    for run in granted:
        done = run.result is RunResult.SUCCESS
        assert told[(EventKind.COMPLETED, run.id)] == (1 if done else 0)
        assert told[(EventKind.STARTED, run.id)] <= 1


def assert_one_run_a_grant(relay: RelayOnAirflow, stages: tuple[str, ...]) -> int:
    """Airflow has the granted runs of the pipeline and no other; returns their number.

    But for runs that a test started itself, for an intake or for an item that then got a run of its own: they
    have done no work.
    """
    with relay.ledger.read() as tx:
        query = select(run_table.c.run_id).where(run_table.c.pipeline == relay.pipeline)
        granted = list(tx.conn.execute(query).scalars())
    found = {r["dag_run_id"]: r["dag_id"] for s in stages for r in relay.api.list_runs(relay.dag(s))}
    for run_id in set(found) - set(granted):
        assert run_id.startswith("manual__")
        states = relay.api.task_states(found[run_id], run_id)
        ends = {state for task, state in states.items() if task != HAND_OFF_TASK_ID}
        assert ends <= {"skipped", "failed"}, "skipped, or killed before that"
    assert set(granted) <= set(found)
    assert len(set(granted)) == len(granted)
    return len(granted)


def assert_nothing_is_held(relay: RelayOnAirflow) -> None:
    """Nothing waits in the outbox, and no slot is taken."""
    with relay.ledger.read() as tx:
        assert runs.open_runs(tx) == []
        assert tx.conn.execute(select(slots)).all() == []

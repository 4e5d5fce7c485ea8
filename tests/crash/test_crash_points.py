"""Kill -9 at each named point of hand-off, sweep and tick: the item still ends, by one run a grant.

The 60 s after which somebody else sends a grant, and the time after which an item is stale, are passed by a
clock that is ahead, not by waiting.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from airflow_instance import AirflowInstance
from airflow_relay.clock import OFFSET_VARIABLE
from airflow_relay.core.item import Run
from airflow_relay.core.states import ItemState, RunState
from airflow_relay.crash import CRASH_VARIABLE, CrashPoint
from airflow_relay.ledger import runs
from airflow_relay.ledger.schema import slots
from integration.relay_on_airflow import RelayOnAirflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SWEEP_DAG = "relay__recovery"
STAGES = ("first", "second", "third")


class Switches:
    """What the next task processes find in their environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "switches"
        self.folder.mkdir(exist_ok=True)

    def die_once_at(self, point: CrashPoint) -> Path:
        """The next process that comes to this point dies; returns the file that appears then."""
        memory = self.home / f"died-{uuid.uuid4().hex}"
        (self.folder / CRASH_VARIABLE).write_text(f"{point.value}@{memory}")
        return memory

    def clock_ahead(self, by: timedelta) -> None:
        (self.folder / OFFSET_VARIABLE).write_text(str(by.total_seconds()))

    def clear(self) -> None:
        for file in self.folder.iterdir():
            file.unlink()


@pytest.fixture(scope="module")
def relay(crashing_airflow: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(crashing_airflow, "crash", "first")
    crashing_airflow.wait_for_dags(*(made.dag(s) for s in STAGES), "relay__dispatch", SWEEP_DAG)
    # Only the test lets time pass and sweeps come.
    for dag_id in ("relay__dispatch", SWEEP_DAG):
        crashing_airflow.api.pause(dag_id)
        crashing_airflow.wait(
            lambda d=dag_id: all(r["state"] in ("success", "failed") for r in made.api.list_runs(d)),
            what=f"{dag_id} to be idle",
        )
        crashing_airflow.api.unpause(dag_id)
    yield made
    made.close()


@pytest.fixture
def switches(relay: RelayOnAirflow) -> Iterator[Switches]:
    made = Switches(relay.airflow.home)
    made.clear()
    yield made
    made.clear()


def died(relay: RelayOnAirflow, memory: Path) -> None:
    relay.airflow.wait(memory.exists, what="a process to die", timeout=180)


def run_dag(relay: RelayOnAirflow, dag_id: str) -> None:
    run_id = relay.api.trigger_dag(dag_id)
    run = relay.airflow.wait_for_run(dag_id, run_id, timeout=300)
    assert run["state"] == "success", relay.api.task_states(dag_id, run_id)


def later(relay: RelayOnAirflow, switches: Switches, **delta: float) -> None:
    """Let time pass for Relay, then one tick come."""
    switches.clock_ahead(timedelta(**delta))
    run_dag(relay, "relay__dispatch")


def assert_whole(relay: RelayOnAirflow, key: str) -> None:
    """Each grant has one run row and one run in Airflow, and each stage was handed off once an epoch."""
    granted = relay.runs(key)
    epochs = [run.epoch for run in granted]
    assert sorted(set(epochs)) == sorted(epochs)
    in_airflow = [r for ids in relay.airflow_runs(key, STAGES).values() for r in ids]
    assert sorted(in_airflow) == sorted(run.run_id for run in granted)
    completions = [line for line in relay.log(key) if " completed" in line]
    assert len(completions) == len(set(completions)) == len(STAGES)


def assert_no_slot_is_kept(relay: RelayOnAirflow) -> None:
    """After a tick only open runs hold slots."""
    with relay.ledger.read() as tx:
        holders = set(tx.conn.execute(select(slots.c.run)).scalars())
        open_runs = {run.id for run in runs.open_runs(tx)}
    assert holders == open_runs


def last_run(relay: RelayOnAirflow, key: str) -> Run:
    return relay.runs(key)[-1]


def test_killed_at_work_the_item_is_refired_by_the_sweep(relay, switches):
    key = relay.start("at-work", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second", timeout=180)
    run = relay.run_of(key, "second")
    row = relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=frozenset({"running"}))
    os.kill(int(row["pid"]), signal.SIGKILL)
    relay.wait_for(key, ItemState.FAILED, timeout=180)
    relay.signal(key, "second")
    switches.clock_ahead(timedelta(hours=3))
    run_dag(relay, SWEEP_DAG)
    assert relay.wait_for(key, ItemState.DONE, timeout=180).attempts == 1
    later(relay, switches, hours=3)
    assert_whole(relay, key)
    assert_no_slot_is_kept(relay)


def test_killed_as_its_first_task_begins_the_item_is_refired_by_the_sweep(relay, switches):
    memory = switches.die_once_at(CrashPoint.GUARD_STARTED)
    key = relay.start("guard")
    died(relay, memory)
    switches.clear()
    relay.wait_for(key, ItemState.FAILED, timeout=180)
    switches.clock_ahead(timedelta(hours=3))
    run_dag(relay, SWEEP_DAG)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert_whole(relay, key)
    assert_no_slot_is_kept(relay)


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.HAND_OFF_BEFORE_COMMIT,
        CrashPoint.HAND_OFF_AFTER_COMMIT,
        CrashPoint.HAND_OFF_AFTER_TRIGGER,
    ],
)
def test_a_hand_off_killed_at_any_point_hands_on_once(relay, switches, point):
    key = relay.start("hand-off", first="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="first", timeout=180)
    memory = switches.die_once_at(point)
    relay.signal(key, "first")
    died(relay, memory)
    switches.clear()
    relay.airflow.wait(lambda: len(relay.runs(key)) > 1, what="the next stage to be granted", timeout=180)
    later(relay, switches, minutes=2)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert relay.item(key).attempts == 0, "a hand-off is no attempt"
    assert_whole(relay, key)
    later(relay, switches, minutes=10)
    assert_no_slot_is_kept(relay)


def test_a_sweep_killed_between_charging_and_refiring_charges_once_and_the_item_ends(relay, switches):
    key = relay.start("sweep", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second", timeout=180)
    relay.wait_for_run(relay.run_of(key, "second"), "failed")
    relay.signal(key, "second")
    switches.clock_ahead(timedelta(hours=3))
    memory = switches.die_once_at(CrashPoint.SWEEP_CHARGED)
    run_dag(relay, SWEEP_DAG)
    assert memory.exists()
    later(relay, switches, hours=3, minutes=5)
    item = relay.wait_for(key, ItemState.DONE, timeout=180)
    assert item.attempts == 1
    assert_whole(relay, key)
    assert_no_slot_is_kept(relay)


def test_a_tick_killed_between_granting_and_sending_starts_one_run(relay, switches):
    relay.api.pause(relay.dag("second"))
    key = relay.start("tick")
    relay.wait_for(key, ItemState.READY, stage="second", timeout=180)
    relay.api.unpause(relay.dag("second"))
    memory = switches.die_once_at(CrashPoint.TICK_GRANTED)
    run_dag(relay, "relay__dispatch")
    assert memory.exists()
    assert last_run(relay, key).state is RunState.OPEN
    later(relay, switches, minutes=2)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert_whole(relay, key)
    later(relay, switches, minutes=10)
    assert_no_slot_is_kept(relay)


def test_an_outage_of_a_model_for_six_hours(relay, switches):
    """12 items whose every call fails: at most 3 attempts a day each, and after a bulk redrive all end."""
    keys = [relay.start(f"outage-{n:02}", second="fail") for n in range(12)]
    for key in keys:
        relay.wait_for(key, ItemState.FAILED, stage="second", timeout=300)
    for hours in (3, 5.5, 8, 10.5):
        switches.clock_ahead(timedelta(hours=hours))
        run_dag(relay, SWEEP_DAG)
        for key in keys:
            relay.wait_for(key, ItemState.FAILED, ItemState.DEAD, timeout=300)
        assert max(relay.item(key).attempts for key in keys) <= 3
    states = {relay.item(key).state for key in keys}
    assert states <= {ItemState.FAILED, ItemState.DEAD}
    for key in keys:
        relay.signal(key, "second")
    form = {"action": "redrive", "pipeline": "crash", "stage": "second"}
    run_id = relay.api.trigger_dag("relay__admin", form)
    assert relay.airflow.wait_for_run("relay__admin", run_id)["state"] == "success", json.dumps(form)
    switches.clock_ahead(timedelta(hours=13))
    run_dag(relay, SWEEP_DAG)
    for key in keys:
        relay.wait_for(key, ItemState.DONE, timeout=300)
        assert_whole(relay, key)

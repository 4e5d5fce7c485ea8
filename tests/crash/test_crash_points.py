"""Kill -9 at each named point of hand-off, sweep and tick: the item still ends, by one run a grant.

The 60 s after which somebody else sends a grant, and the time after which an item is stale, are passed by a
clock that is ahead, not by waiting.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState, RunState
from airflow_relay.crash import CrashPoint
from crash.on_airflow import (
    SWEEP_DAG,
    TICK_DAG,
    assert_nothing_is_held,
    assert_one_run_a_grant,
    assert_whole,
    later,
    quiet,
    run_dag,
    sweep,
)
from integration.relay_on_airflow import RelayOnAirflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STAGES = ("first", "second", "third")


@pytest.fixture(scope="module")
def relay(crashing_airflow: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(crashing_airflow, "crash", "first")
    crashing_airflow.wait_for_dags(*(made.dag(s) for s in STAGES), TICK_DAG, SWEEP_DAG)
    quiet(made)
    yield made
    made.close()


def died(relay: RelayOnAirflow, memory: Path) -> None:
    relay.airflow.wait(memory.exists, what="a process to die", timeout=180)


def assert_ended_well(relay: RelayOnAirflow, key: str) -> None:
    """The item is whole, each grant had one run, and one tick later nothing is held."""
    relay.tick()
    assert_whole(relay, key, STAGES)
    assert_one_run_a_grant(relay, STAGES)
    assert_nothing_is_held(relay)


def test_killed_at_work_the_item_is_refired_by_the_sweep(relay, switches):
    key = relay.start("at-work", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second", timeout=180)
    run = relay.run_of(key, "second")
    row = relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=frozenset({"running"}))
    os.kill(int(row["pid"]), signal.SIGKILL)
    relay.wait_for(key, ItemState.FAILED, timeout=180)
    relay.signal(key, "second")
    switches.clock_ahead(timedelta(hours=3))
    sweep(relay)
    assert relay.wait_for(key, ItemState.DONE, timeout=180).attempts == 1
    assert_ended_well(relay, key)


def test_killed_as_its_first_task_begins_the_item_is_refired_by_the_sweep(relay, switches):
    memory = switches.die_once_at(CrashPoint.GUARD_STARTED)
    key = relay.start("guard")
    died(relay, memory)
    switches.clear()
    relay.wait_for(key, ItemState.FAILED, timeout=180)
    switches.clock_ahead(timedelta(hours=3))
    sweep(relay)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert_ended_well(relay, key)


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.HAND_OFF_BEFORE_COMMIT,
        CrashPoint.HAND_OFF_AFTER_COMMIT,
        CrashPoint.HAND_OFF_AFTER_TRIGGER,
    ],
)
@pytest.mark.parametrize(
    ("stage", "tries"), [("first", 1), ("second", 2)], ids=["in its last task", "in its own task"]
)
def test_a_hand_off_killed_at_any_point_hands_on_once(relay, switches, stage, tries, point):
    key = relay.start("hand-off", **{stage: "wait"})
    relay.wait_for(key, ItemState.RUNNING, stage=stage, timeout=180)
    before = len(relay.runs(key))
    memory = switches.die_once_at(point)
    relay.signal(key, stage)
    died(relay, memory)
    switches.clear()
    relay.airflow.wait(
        lambda: len(relay.runs(key)) > before, what="the next stage to be granted", timeout=180
    )
    later(relay, switches, minutes=2)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert relay.item(key).attempts == 0, "a hand-off is no attempt"
    run = relay.run_of(key, stage)
    relay.wait_for_run(run, "success")
    assert relay.api.task_instance(run.dag_id, run.run_id, "hand_off")["try_number"] == tries
    assert_ended_well(relay, key)


def test_a_sweep_killed_between_charging_and_refiring_charges_once_and_the_item_ends(relay, switches):
    key = relay.start("sweep", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second", timeout=180)
    relay.wait_for_run(relay.run_of(key, "second"), "failed")
    relay.signal(key, "second")
    switches.clock_ahead(timedelta(hours=3))
    memory = switches.die_once_at(CrashPoint.SWEEP_CHARGED)
    sweep(relay)
    assert memory.exists()
    later(relay, switches, hours=3, minutes=5)
    item = relay.wait_for(key, ItemState.DONE, timeout=180)
    assert item.attempts == 1
    assert_ended_well(relay, key)


def test_a_tick_killed_between_granting_and_sending_starts_one_run(relay, switches):
    relay.api.pause(relay.dag("second"))
    key = relay.start("tick")
    relay.wait_for(key, ItemState.READY, stage="second", timeout=180)
    relay.api.unpause(relay.dag("second"))
    memory = switches.die_once_at(CrashPoint.TICK_GRANTED)
    run_dag(relay, TICK_DAG)
    assert memory.exists()
    assert relay.runs(key)[-1].state is RunState.OPEN
    later(relay, switches, minutes=2)
    relay.wait_for(key, ItemState.DONE, timeout=180)
    assert_ended_well(relay, key)

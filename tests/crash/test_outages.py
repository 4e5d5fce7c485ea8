"""Hours without a model, hours of patience, a weekend without Airflow: on a real one, with a clock ahead.

Airflow itself knows nothing of that clock: only Relay's tasks live in the later time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count, pairwise

import pytest
from sqlalchemy import select

from airflow_instance import COMPONENTS, AirflowInstance
from airflow_relay.core.breaker import BreakerState
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import EventKind, ItemState, RunState
from airflow_relay.ledger import breakers, dead_letters, items
from airflow_relay.ledger.schema import alerts as alert_table
from crash.on_airflow import (
    ADMIN_DAG,
    SWEEP_DAG,
    TICK_DAG,
    Switches,
    assert_nothing_is_held,
    assert_one_run_a_grant,
    assert_whole,
    quiet,
    run_dag,
    sweep,
    tomorrow,
)
from integration.relay_on_airflow import RelayOnAirflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

STAGES = ("first", "second", "third")
PATIENT_STAGES = ("begin", "wait", "retried", "narrow")
FIRST_SWEEP = timedelta(minutes=10)
SWEEP_EVERY = timedelta(hours=2, minutes=6)
COOLDOWN = timedelta(hours=2)
DEFERRED = frozenset({"deferred"})
RUNNING = frozenset({"running"})


@pytest.fixture(scope="module")
def relay(crashing_airflow: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(crashing_airflow, "crash", "first")
    crashing_airflow.wait_for_dags(*(made.dag(s) for s in STAGES), TICK_DAG, SWEEP_DAG, ADMIN_DAG)
    quiet(made)
    yield made
    made.close()


DAYS = count()


@pytest.fixture
def morning(switches: Switches) -> datetime:
    """Six o'clock on a day that is this test's own: it passes from then on, and the date does not change."""
    made = tomorrow(6) + timedelta(days=7 * next(DAYS))
    switches.clock_at(made)
    return made


@pytest.fixture(scope="module")
def patient(relay: RelayOnAirflow) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(relay.airflow, "patient", "begin")
    relay.airflow.wait_for_dags(*(made.dag(s) for s in PATIENT_STAGES))
    yield made
    made.close()


def alerts_of(relay: RelayOnAirflow, key: str) -> list[str]:
    with relay.ledger.read() as tx:
        told = tx.conn.execute(select(alert_table.c.text)).scalars()
        return [text for text in told if f"'{key}'" in text]


def attempts_at(relay: RelayOnAirflow, item: Item) -> list[datetime]:
    """When grants of the item were charged; one that waits behind a breaker is not."""
    with relay.ledger.read() as tx:
        granted = items.log_of(tx, item.id, kinds=[EventKind.GRANTED])
    return [event.at for event in granted if "attempts" in event.set]


def settled(relay: RelayOnAirflow, keys: list[str]) -> list[Item]:
    """Wait until Airflow has nothing more to do for the items, and their runs are closed there too."""

    def at_rest() -> list[Item] | None:
        found = [relay.item(key) for key in keys]
        moving = (ItemState.GRANTED, ItemState.RUNNING)
        return None if any(item is None or item.state in moving for item in found) else found

    found = relay.airflow.wait(at_rest, what="the items to come to rest", timeout=600, interval=0.5)
    for stage in STAGES:
        relay.airflow.wait(
            lambda s=stage: all(
                r["state"] in ("success", "failed") for r in relay.api.list_runs(relay.dag(s))
            ),
            what=f"the runs of {stage} to end",
        )
    return found


def assert_within_the_rules(relay: RelayOnAirflow, keys: list[str]) -> None:
    """No item above three attempts in the day, no two within the cooldown."""
    for key in keys:
        item = relay.item(key)
        assert item is not None
        at = attempts_at(relay, item)
        assert len(at) == item.attempts <= 3
        assert all(later - earlier >= COOLDOWN for earlier, later in pairwise(at))


def sweep_of(morning: datetime, number: int) -> datetime:
    """When the sweep of that number comes: late enough that whatever failed after the last one is stale."""
    return morning + FIRST_SWEEP + number * SWEEP_EVERY


def outage(relay: RelayOnAirflow, switches: Switches, morning: datetime, keys: list[str]) -> None:
    """Let every call fail for six hours: through three sweeps, with a tick half an hour after each."""
    for number in (1, 2, 3):
        switches.clock_at(sweep_of(morning, number))
        sweep(relay)
        settled(relay, keys)
        switches.clock_at(sweep_of(morning, number) + timedelta(minutes=30))
        run_dag(relay, TICK_DAG)
        settled(relay, keys)
        assert_within_the_rules(relay, keys)


def started(relay: RelayOnAirflow, name: str, asked: list[object]) -> list[str]:
    """Items whose second stage does as asked; they have failed or died there, or wait behind its breaker."""
    keys = [relay.start(f"{name}-{n:02}", second=what) for n, what in enumerate(asked)]
    ends = (ItemState.FAILED, ItemState.DEAD, ItemState.READY)
    for key in keys:
        relay.wait_for(key, *ends, stage="second", timeout=600)
    settled(relay, keys)
    return keys


def dead(relay: RelayOnAirflow, keys: list[str]) -> list[str]:
    """Those in the dead letters: each with one letter and one alert."""
    found = [key for key in keys if relay.item(key).state is ItemState.DEAD]
    for key in found:
        with relay.ledger.read() as tx:
            assert len(dead_letters.of_item(tx, relay.item(key).id)) == 1
        assert len([said for said in alerts_of(relay, key) if "dead letters" in said]) == 1
    return found


def redrive(relay: RelayOnAirflow, **form: object) -> int:
    run_id = run_dag(relay, ADMIN_DAG, {"action": "redrive", "pipeline": "crash", "stage": "second", **form})
    return int(relay.api.xcom(ADMIN_DAG, run_id, "act")["changed"])


def end(relay: RelayOnAirflow, keys: list[str]) -> None:
    for key in keys:
        relay.wait_for(key, ItemState.DONE, timeout=600)
        assert_whole(relay, key, STAGES)
    assert_one_run_a_grant(relay, STAGES)
    assert_nothing_is_held(relay)


def test_six_hours_without_a_model_whose_errors_say_nothing_end_in_the_dead_letters(relay, switches, morning):
    """Nothing tells that it is the model: each item uses up its three attempts, then a person is asked."""
    keys = started(relay, "outage", ["fail"] * 12)
    outage(relay, switches, morning, keys)
    assert {relay.item(key).attempts for key in keys} == {3}
    assert dead(relay, keys) == []
    for key in keys:
        relay.signal(key, "second")
    for number in (4, 5):  # the second one finds nothing more to give up, and alerts nobody again
        switches.clock_at(sweep_of(morning, number))
        sweep(relay)
        assert dead(relay, keys) == keys
    assert redrive(relay) == 12
    end(relay, keys)


def test_six_hours_without_a_model_that_says_so_cost_next_to_nothing(relay, switches, morning):
    """The breaker holds the items back; only what asks for a person (a key that is no longer good) dies."""
    keys = started(relay, "down", [401, 503, 503] * 4)
    locked_out, overloaded = set(keys[::3]), sorted(set(keys) - set(keys[::3]))
    with relay.ledger.read() as tx:
        assert breakers.load_all(tx)["crash", "second"].state is BreakerState.OPEN
    outage(relay, switches, morning, keys)
    given_up = dead(relay, keys)
    assert given_up
    assert set(given_up) <= locked_out
    assert sum(relay.item(key).attempts for key in keys) <= 3, "one probe a sweep"
    for key in keys:
        relay.signal(key, "second")
    assert redrive(relay, error_class="auth") == len(given_up)
    for number in (4, 5, 6, 7):
        switches.clock_at(sweep_of(morning, number))
        sweep(relay)
        settled(relay, keys)
        run_dag(relay, TICK_DAG)
        settled(relay, keys)
    end(relay, keys)
    assert_within_the_rules(relay, overloaded)


def test_a_stage_that_waits_five_hours_in_the_triggerer_is_never_touched(patient, switches, morning):
    key = patient.start("five-hours")
    run = deferred_at(patient, key)
    before = patient.item(key)
    for hours in (2.5, 4.75):
        switches.clock_at(morning + timedelta(hours=hours))
        assert sweep(patient)["leave"] == 1, "the sweep has looked at it"
        run_dag(patient, TICK_DAG)
        assert patient.item(key) == before
        assert patient.runs(key)[-1].id == run.id
        assert patient.runs(key)[-1].state is RunState.OPEN
        assert patient.api.task_instance(run.dag_id, run.run_id, "wait")["state"] == "deferred"
    assert alerts_of(patient, key) == []
    switches.clock_at(morning + timedelta(hours=5))
    patient.signal(key, "wait")
    assert patient.wait_for(key, ItemState.DONE, timeout=300).attempts == 0
    assert_patient_ended_well(patient, [key])


def deferred_at(patient: RelayOnAirflow, key: str) -> Run:
    """Wait until the item's run waits in the triggerer."""
    patient.wait_for(key, ItemState.RUNNING, stage="wait", timeout=180)
    run = patient.run_of(key, "wait")
    patient.airflow.wait_for_task(run.dag_id, run.run_id, "wait", states=DEFERRED, timeout=180)
    return run


def working_at(patient: RelayOnAirflow, key: str, stage: str) -> Run:
    """Wait until a process works for the item."""
    patient.signal(key, "wait")
    patient.wait_for(key, ItemState.RUNNING, stage=stage, timeout=180)
    run = patient.run_of(key, stage)
    patient.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=RUNNING, timeout=180)
    return run


def assert_patient_ended_well(patient: RelayOnAirflow, keys: list[str]) -> None:
    for key in keys:
        assert_whole(patient, key, PATIENT_STAGES)
    assert_one_run_a_grant(patient, PATIENT_STAGES)
    assert_nothing_is_held(patient)


def test_a_weekend_without_airflow_costs_no_item_an_attempt(patient, switches, morning):
    """One item waits in the triggerer, two work in processes that are lost (Airflow tries these tasks again),
    one waits for a slot. One had failed before: it gets the attempt that was due anyway.
    """
    airflow = patient.airflow
    deferred = patient.start("deferred")
    worker = patient.start("worker", retried="wait")
    holder = patient.start("holder", narrow="wait")
    untouched = [deferred_at(patient, deferred)]
    untouched += [working_at(patient, worker, "retried"), working_at(patient, holder, "narrow")]
    ready = patient.start("ready")
    patient.signal(ready, "wait")
    patient.wait_for(ready, ItemState.READY, stage="narrow", timeout=180)
    failed = patient.start("failed", begin="fail")
    patient.wait_for(failed, ItemState.FAILED, timeout=180)
    keys = [deferred, worker, holder, ready, failed]

    for name in COMPONENTS:
        airflow.kill(name)
    switches.clock_at(morning + timedelta(days=2, hours=14))
    for stage in ("begin", "wait"):
        patient.signal(failed, stage)
    for name in COMPONENTS:
        airflow.restart(name)
    for _ in range(2):
        counts = sweep(patient)
        assert counts.get("dead_letter", 0) == 0
        run_dag(patient, TICK_DAG)
    still = [patient.runs(key)[-1] for key in (deferred, worker, holder)]
    assert [(run.id, run.state) for run in still] == [(run.id, RunState.OPEN) for run in untouched]
    for key, stage in ((deferred, "wait"), (worker, "retried"), (holder, "narrow")):
        patient.signal(key, stage)
    attempts = {key: patient.wait_for(key, ItemState.DONE, timeout=600).attempts for key in keys}
    assert attempts == {**dict.fromkeys(keys, 0), failed: 1}
    assert_patient_ended_well(patient, keys)

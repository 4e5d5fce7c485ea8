"""Runs that ended without telling are recorded, several in a transaction and each once. Both databases."""

from __future__ import annotations

from typing import Any

from airflow_relay.core.finding import RunLiveness
from airflow_relay.core.item import Run
from airflow_relay.core.states import ItemState, RunResult, RunState
from airflow_relay.ledger import runs
from airflow_relay.operators import reconcile
from airflow_relay.operators.reconcile import Examined
from support.pipelines import Driver

FAILED = {"work": "failed", "hand_off": "failed"}
ALIVE = {"work": "running", "hand_off": None}
COUNT = reconcile.CLOSED_AT_ONCE * 2 + 3


def found(drive: Driver) -> list[Examined]:
    """Every third run is alive, every third failed, and Airflow has lost the others."""
    granted = drive.intake(*(f"item-{n:02}" for n in range(COUNT)))
    assert len(granted) == COUNT
    kinds = ((RunLiveness.ALIVE, ALIVE), (RunLiveness.FAILED_UNTOLD, FAILED), (RunLiveness.GONE, {}))
    return [Examined(run, *kinds[n % 3]) for n, run in enumerate(granted)]


def test_each_run_that_ended_is_closed_and_the_living_are_left_alone(drive: Driver) -> None:
    examined = found(drive)
    reconcile.record_ends(drive.ledger, examined, conditions=drive.conditions, ti=None)
    with drive.ledger.read() as tx:
        after = [runs.by_id(tx, one.run.id) for one in examined]
        held = runs.usage(tx)["airflow.runs"]
    expected = {
        RunLiveness.ALIVE: (RunState.OPEN, None),
        RunLiveness.FAILED_UNTOLD: (RunState.CLOSED, RunResult.FAILED),
        RunLiveness.GONE: (RunState.CLOSED, RunResult.LOST),
    }
    assert [(r.state, r.result) for r in after] == [expected[one.liveness] for one in examined]
    assert held == sum(one.liveness is RunLiveness.ALIVE for one in examined)


def test_recording_the_same_ends_again_changes_nothing(drive: Driver) -> None:
    examined = found(drive)
    reconcile.record_ends(drive.ledger, examined, conditions=drive.conditions, ti=None)
    before = [drive.item(f"item-{n:02}") for n in range(COUNT)]
    assert {i.state for i in before} == {ItemState.GRANTED, ItemState.FAILED}
    assert reconcile.record_ends(drive.ledger, examined, conditions=drive.conditions, ti=None) == []
    assert [drive.item(f"item-{n:02}") for n in range(COUNT)] == before


class Returned:
    """The task instance that a tick pulls return values with."""

    def __init__(self, bad: Run) -> None:
        self.bad = bad

    def xcom_pull(self, *, run_id: str, **_: Any) -> object:
        return {"at": object()} if run_id == self.bad.run_id else "fine"


def test_a_result_that_cannot_be_kept_is_its_own_stage_s_failure_and_hinders_no_other(drive: Driver) -> None:
    bad, good = drive.intake("bad", "good")
    for run in (bad, good):
        drive.guard(run)
    done = {"work": "success", "hand_off": "failed"}
    examined = [Examined(drive.run(r), RunLiveness.SUCCEEDED_UNTOLD, done) for r in (bad, good)]
    reconcile.record_ends(drive.ledger, examined, conditions=drive.conditions, ti=Returned(bad))
    assert (drive.run(bad).result, drive.item("bad").state) == (RunResult.FAILED, ItemState.DEAD)
    assert drive.item("good").stage == "second"

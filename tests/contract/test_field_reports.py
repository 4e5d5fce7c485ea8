"""Reports from the field about hand-offs and intakes, as tests; numbered as in ``docs/field-reports.md``."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException
from sqlalchemy import select

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.ledger import governing, items
from airflow_relay.ledger.runs import RESEND_AFTER
from airflow_relay.ledger.schema import metadata
from airflow_relay.operations import actions
from airflow_relay.operators import guard
from airflow_relay.operators.trigger import send_grants
from support.pipelines import SHAPE, Driver


class ProcessDied(BaseException):
    """Stands for SIGKILL."""


class FakeAirflow:
    """Keeps a run for each run id, like Airflow's execution API.

    :param dies_after: this many messages, the sender is killed: the run is there, nobody is told.
    :param missing: DAGs that it does not know.
    """

    def __init__(self, *, dies_after: int | None = None, missing: frozenset[str] = frozenset()) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.dies_after = dies_after
        self.missing = missing

    def trigger(self, *, dag_id: str, run_id: str, conf: dict[str, Any], note: str) -> bool:
        if dag_id in self.missing:
            raise compat.TargetDagError(f"DAG {dag_id!r} does not exist.", is_refused=True)
        known = run_id in self.runs
        self.runs.setdefault(run_id, conf)
        if len(self.runs) == self.dies_after:
            self.dies_after = None
            raise ProcessDied
        return not known


def test_report_1_a_run_that_exists_already_is_handed_off_and_charged_nothing(drive: Driver) -> None:
    airflow = FakeAirflow()
    [grant] = drive.intake("a")
    airflow.runs[grant.run_id] = {}
    assert send_grants(drive.ledger, [grant], trigger=airflow.trigger) == [grant]
    assert drive.run(grant).confirmed_at is not None
    drive.later(hours=1)
    assert drive.ledger.unconfirmed(drive.now) == []
    assert drive.item("a").attempts == 0


def test_report_2_hand_offs_that_died_midway_and_are_all_repeated_start_each_run_once(drive: Driver) -> None:
    airflow = FakeAirflow(dies_after=7)
    grants = drive.intake(*(f"item-{n}" for n in range(20)))
    with pytest.raises(ProcessDied):
        send_grants(drive.ledger, grants, trigger=airflow.trigger)
    for _ in range(2):
        send_grants(drive.ledger, grants, trigger=airflow.trigger)
    assert sorted(airflow.runs) == sorted(grant.run_id for grant in grants)
    drive.now += 2 * RESEND_AFTER
    assert drive.ledger.unconfirmed(drive.now) == []


def test_report_4_the_failed_item_runs_again_each_time_and_under_a_run_id_of_its_own(drive: Driver) -> None:
    airflow = FakeAirflow()
    grants = drive.intake("a")
    for number in range(1, 5):
        [grant] = send_grants(drive.ledger, grants, trigger=airflow.trigger)
        assert len(airflow.runs) == number, "each recovery is a new run"
        drive.guard(grant)
        drive.end(grant, result=RunResult.FAILED, error=ErrorClass.TIMEOUT.value)
        drive.later(hours=3)
        actions.redrive(drive.ledger, "a", by="ada", now=drive.now, pipeline=drive.pipeline.name)
        grants = drive.dispatch()


def test_report_9_a_missing_dag_is_told_on_the_item_which_runs_once_the_dag_is_there(drive: Driver) -> None:
    [one, other] = drive.intake("a", "b")
    airflow = FakeAirflow(missing=frozenset({one.dag_id}))
    with pytest.raises(compat.TargetDagError, match=one.dag_id):
        send_grants(drive.ledger, [one, other], trigger=airflow.trigger)
    assert any("Hand-off failed" in line and "does not exist" in line for line in drive.log("a"))
    airflow.missing = frozenset()
    drive.now = utcnow() + governing.SHORTEST_DAG_HOLD
    again = drive.dispatch()
    send_grants(drive.ledger, again, trigger=airflow.trigger)
    assert sorted(airflow.runs) == sorted(run.run_id for run in again)
    assert {run.item_id for run in again} == {one.item_id, other.item_id}
    assert drive.item("a").attempts == 0


def test_report_10_500_items_and_a_duplicate_are_500_runs(drive: Driver) -> None:
    keys = [f"item-{n}" for n in range(500)]
    registered, grants = drive.ledger.intake(drive.pipeline, [*keys, keys[7]], drive.conditions, drive.now)
    assert list(registered.new) == keys
    with drive.ledger.read() as tx:
        assert len(items.listing(tx, limit=1000)) == 500
    assert len({grant.run_id for grant in grants}) == len(grants)


def test_report_11_an_intake_that_finds_nothing_is_no_error(drive: Driver) -> None:
    registered, grants = drive.ledger.intake(drive.pipeline, [], drive.conditions, drive.now)
    assert (list(registered.new), list(registered.known), list(grants)) == ([], [], [])
    assert drive.dispatch() == []
    assert send_grants(drive.ledger, [], trigger=FakeAirflow().trigger) == []


def test_report_14_what_else_is_in_conf_is_copied_nowhere(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_hook, "_ledger_for", lambda pid: drive.ledger)
    monkeypatch.setattr(guard, "read_conditions", lambda ledger, now: Conditions())
    conf = {"item_id": "a", "api_token": "s3cret"}
    run = SimpleNamespace(dag_id=drive.pipeline.dag_id("first"), run_id="manual", conf=conf, clear_number=0)
    by_hand = guard.Guard(drive.pipeline, "first", SHAPE)
    with pytest.raises(AirflowRescheduleException):  # it has its item now, and starts over
        by_hand({"dag_run": run})
    by_hand({"dag_run": run})
    with drive.ledger.read() as tx:
        for table in metadata.sorted_tables:
            rows = [tuple(map(str, row)) for row in tx.conn.execute(select(table))]
            assert "s3cret" not in json.dumps(rows), table.name
    assert drive.item("a").key == "a"

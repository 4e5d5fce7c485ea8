"""The hand-off as Airflow runs it, where results, outcomes, intakes or DAGs are not as they should be."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.completion import StageShape
from airflow_relay.core.item import Run
from airflow_relay.core.limits import Hold
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, RunResult, RunState
from airflow_relay.ledger import dead_letters, governing, results
from airflow_relay.ledger.errors import BadItemError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators import hand_off
from airflow_relay.operators.hand_off import AtOnce, HandOff, StageFailedError
from support.pipelines import SHAPE, Driver, line

ROUTER = Pipeline(
    "router",
    [
        Stage("judge", schedule="@daily", to={"ok": "ship"}),
        Stage("ship", to=END),
    ],
)


def conditions(_ledger: Ledger, _now: datetime, **_: Any) -> Conditions:
    """Airflow sets no limit, and holds nothing; the ledger's holds are its own."""
    return Conditions()


class Airflow:
    """What a hand-off asks of Airflow.

    :param returned: the return value of the stage's work.
    """

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.returned: Any = None
        self.work = "success"
        self.missing: set[str] = set()
        self.started: list[str] = []
        self.hand_off_state: str | None = None
        self.skipped: list[str] = []
        self.links: dict[str, str] = {}
        monkeypatch.setattr(hand_off, "get_ledger", lambda: ledger)
        monkeypatch.setattr(hand_off, "recent_conditions", conditions)
        monkeypatch.setattr(hand_off.metrics, "run_ended", lambda *_, **__: None)
        monkeypatch.setattr(compat, "task_states", self.states)
        monkeypatch.setattr(compat, "skip_task", self.skipped.append)
        monkeypatch.setattr(compat, "push_link", self.push_link)
        monkeypatch.setattr(compat, "trigger_dag_run", self.trigger)

    def states(self, _: str, runs: list[str], **__: Any) -> dict[str, dict[str, str | None]]:
        return {runs[0]: {"work": self.work, "hand_off": self.hand_off_state}}

    def push_link(self, _: Any, task_id: str, *, key: str, address: str) -> None:
        self.links[f"{task_id} {key}"] = address

    def trigger(self, *, dag_id: str, run_id: str, **_: Any) -> bool:
        if dag_id in self.missing:
            raise compat.TargetDagError(f"DAG {dag_id!r} does not exist.", is_refused=True)
        self.started.append(run_id)
        return True

    def hand_off(self, pipeline: Pipeline, stage: str, dag_run: Any, **arguments: Any) -> Any:
        operator = HandOff(task_id="hand_off", pipeline=pipeline, stage=stage, shape=SHAPE, **arguments)
        self.triggered = operator
        return operator.execute(self.context(dag_run))

    def at_once(self, drive: Driver, run: Run, *, shape: StageShape = SHAPE) -> None:
        """What the process of the stage's last task does when that has succeeded."""
        operator = HandOff(task_id="hand_off", pipeline=drive.pipeline, stage=run.stage, shape=shape)
        AtOnce(operator)(self.context(of(run)))

    def context(self, dag_run: Any) -> dict[str, Any]:
        ti = SimpleNamespace(xcom_pull=lambda **_: self.returned, xcom_push=lambda **_: None)
        return {"dag_run": dag_run, "ti": ti}


@pytest.fixture
def airflow(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    return Airflow(ledger, monkeypatch)


def of(run: Run) -> SimpleNamespace:
    return SimpleNamespace(dag_id=run.dag_id, run_id=run.run_id, clear_number=0, conf={})


INTAKE = SimpleNamespace(dag_id="line__first", run_id="scheduled", clear_number=0, conf={})


@pytest.mark.parametrize(
    "returned",
    [{"at": datetime(2026, 3, 2, tzinfo=timezone.utc)}, float("nan"), {1, 2}, "lone \ud800", {1: 1, "a": 2}],
)
def test_a_result_that_is_not_json_ends_the_stage_and_frees_its_slots(
    airflow: Airflow, drive: Driver, returned: object
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.returned = returned
    with pytest.raises(StageFailedError, match="is not JSON"):
        airflow.hand_off(drive.pipeline, "first", of(run))
    ended, item = drive.run(run), drive.item("a")
    assert (ended.state, ended.result, ended.error_class) == (
        RunState.CLOSED,
        RunResult.FAILED,
        "invalid_request",
    )
    assert item.state is ItemState.DEAD
    assert drive.usage() == {}
    with drive.ledger.read() as tx:
        [letter] = dead_letters.of_item(tx, item.id)
    assert "is not JSON" in letter.reason


@pytest.mark.parametrize("outcome", ["no", "", "o" * 500, "n\x00", None])
def test_an_outcome_that_the_router_does_not_know_fails_its_run_and_keeps_its_result(
    airflow: Airflow, ledger: Ledger, outcome: str | None
) -> None:
    drive = Driver(ledger, ROUTER)
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.returned = {"outcome": outcome, "n": 1}
    with pytest.raises(StageFailedError, match="it knows ok"):
        airflow.hand_off(ROUTER, "judge", of(run))
    assert drive.run(run).result is RunResult.FAILED
    assert drive.item("a").state is ItemState.DEAD
    with ledger.read() as tx:
        assert [r.stage for r in results.of_item(tx, drive.item("a").id)] == ["", "judge"]


def test_a_failed_router_that_is_marked_a_success_asks_for_the_outcome(
    airflow: Airflow, ledger: Ledger
) -> None:
    drive = Driver(ledger, ROUTER)
    [run] = drive.intake("a")
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error="timeout")
    assert drive.item("a").state is ItemState.FAILED
    airflow.hand_off(ROUTER, "judge", of(run))  # Airflow says that the work is a success now
    item = drive.item("a")
    assert item.state is ItemState.DEAD
    assert "it knows ok" in (item.error_reason or "")
    assert any("failed (invalid_request): " in line for line in drive.log("a"))


def test_a_missing_dag_of_its_own_pipeline_fails_the_hand_off_which_names_it(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.missing = {"line__second"}
    for _ in range(3):  # it is retried, and fails for as long as nobody has started the item
        with pytest.raises(compat.TargetDagError, match="line__second"):
            airflow.hand_off(drive.pipeline, "first", of(run))
    assert (drive.item("a").stage, drive.item("a").state) == ("second", ItemState.READY)
    airflow.missing = set()
    with drive.ledger.write() as tx:
        governing.release_hold(tx, "line__second")
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert drive.item("a").state is ItemState.GRANTED
    assert len(airflow.started) == 1


def test_a_missing_dag_of_another_pipeline_fails_no_hand_off(airflow: Airflow, ledger: Ledger) -> None:
    """Its grants are granted, or found in the outbox, by whoever comes by."""
    other, drive = Driver(ledger, line("other", first=1)), Driver(ledger, line())
    other.intake("lost")
    with ledger.write() as tx:
        tx.conn.exec_driver_sql("UPDATE runs SET sent_at = 0")
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.missing = {"other__first"}
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert [drive.item("a").stage, drive.item("a").state] == ["second", ItemState.GRANTED]
    assert len(airflow.started) == 1
    assert any("Hand-off failed: DAG 'other__first' does not exist." in line for line in other.log("lost"))


@pytest.mark.parametrize("returned", [None, "one key", {"key": "a"}])
def test_an_intake_that_returns_no_list_fails_and_registers_nothing(
    airflow: Airflow, drive: Driver, returned: object
) -> None:
    with pytest.raises(BadItemError, match="return a list of items"):
        airflow.hand_off(drive.pipeline, "first", INTAKE, intake=lambda: returned)


def test_an_intake_may_yield_its_items(airflow: Airflow, drive: Driver) -> None:
    found = airflow.hand_off(drive.pipeline, "first", INTAKE, intake=lambda: (k for k in ("a", "b")))
    assert found == {"new": ["a", "b"], "known": 0, "granted": 2}


def test_a_stage_is_handed_off_by_its_last_task_and_the_hand_off_finds_it_so(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.returned = {"n": 1}
    airflow.at_once(drive, run)
    assert drive.run(run).state is RunState.CLOSED
    assert [drive.item("a").stage, drive.item("a").state] == ["second", ItemState.GRANTED]
    told, [started] = drive.log("a"), airflow.started
    assert airflow.skipped == ["hand_off"], "it needs no process"
    assert airflow.links["hand_off _link_ItemLogLink"].endswith(f"/relay/items/{run.item_id}")
    assert airflow.links["hand_off _link_TriggeredRunLink"].endswith(f"/dags/line__second/runs/{started}")
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert drive.log("a") == told
    assert airflow.started == [started]
    assert airflow.triggered.triggered_run is not None
    assert airflow.triggered.triggered_run.run_id == started, "the link in the UI"
    with drive.ledger.read() as tx:
        assert [r.value for r in results.of_item(tx, drive.item("a").id) if r.stage] == [{"n": 1}]


def test_a_hand_off_that_a_worker_has_by_now_is_not_skipped(airflow: Airflow, drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.hand_off_state = "queued"
    airflow.at_once(drive, run)
    assert drive.item("a").state is ItemState.GRANTED
    assert airflow.skipped == []


def test_a_result_that_fails_the_stage_leaves_the_hand_off_to_fail_the_run(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.returned = float("nan")
    airflow.at_once(drive, run)
    assert drive.run(run).result is RunResult.FAILED
    assert airflow.skipped == []
    with pytest.raises(StageFailedError, match="closed before"):
        airflow.hand_off(drive.pipeline, "first", of(run))


def test_what_its_last_task_granted_and_did_not_send_the_hand_off_sends_at_once(
    airflow: Airflow, drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)

    def lost(*_: Any, **__: Any) -> bool:
        raise RuntimeError("the process loses its supervisor")

    with monkeypatch.context() as broken:
        broken.setattr(compat, "trigger_dag_run", lost)
        airflow.at_once(drive, run)
    assert drive.item("a").state is ItemState.GRANTED
    assert airflow.skipped == []
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert len(airflow.started) == 1


def test_the_last_task_leaves_a_missing_dag_to_the_hand_off_which_names_it(
    airflow: Airflow, drive: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.missing = {"line__second"}
    airflow.at_once(drive, run)
    assert "Not handed off yet (TargetDagError: DAG 'line__second' does not exist.)" in caplog.text
    assert airflow.skipped == []
    with pytest.raises(compat.TargetDagError, match="line__second"):
        airflow.hand_off(drive.pipeline, "first", of(run))


def test_the_last_task_hands_off_nothing_of_a_stage_that_has_failed_before_it(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.work = "failed"
    all_done_behind_it = StageShape(("work", "last"), ("last",), "last")
    airflow.at_once(drive, run, shape=all_done_behind_it)
    assert drive.run(run).state is RunState.OPEN
    with pytest.raises(StageFailedError):
        airflow.hand_off(drive.pipeline, "first", of(run))


def test_a_cleared_task_that_the_guard_refuses_fails_its_run_though_the_stage_was_handed_off(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.at_once(drive, run)
    airflow.work = "failed"
    with pytest.raises(StageFailedError, match="closed before"):
        airflow.hand_off(drive.pipeline, "first", of(run))
    assert drive.item("a").state is ItemState.GRANTED


def test_the_last_task_of_an_older_run_moves_nothing(airflow: Airflow, drive: Driver) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    airflow.at_once(drive, run)
    before = drive.item("a")
    airflow.at_once(drive, run)
    assert drive.item("a") == before
    assert len(airflow.started) == 1


def test_an_item_that_waits_after_the_last_task_is_granted_by_the_hand_off_if_it_can_be(
    airflow: Airflow, drive: Driver
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)
    with drive.ledger.write() as tx:
        governing.set_hold(tx, Hold(scope="line", reason="stop", until=None), by="me", now=utcnow())
    airflow.at_once(drive, run)
    assert drive.item("a").state is ItemState.READY
    with drive.ledger.write() as tx:
        governing.release_hold(tx, "line")
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert drive.item("a").state is ItemState.GRANTED
    assert len(airflow.started) == 1


def test_a_hold_that_is_set_while_airflow_answers_counts(
    airflow: Airflow, drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = drive.intake("a")
    drive.guard(run)

    def hold(_: str, runs: list[str], **__: Any) -> dict[str, dict[str, str]]:
        with drive.ledger.write() as tx:
            governing.set_hold(tx, Hold(scope="line", reason="stop", until=None), by="me", now=utcnow())
        return {runs[0]: {"work": "success"}}

    monkeypatch.setattr(compat, "task_states", hold)
    airflow.hand_off(drive.pipeline, "first", of(run))
    assert drive.item("a").state is ItemState.READY
    assert airflow.started == []

"""A DAG that cannot be triggered: its items wait, they take no slot from others, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_relay import compat
from airflow_relay.core.item import Run
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, ItemState, RunResult
from airflow_relay.ledger import governing, reports
from airflow_relay.ledger.governing import LONGEST_DAG_HOLD, SHORTEST_DAG_HOLD
from airflow_relay.operators import trigger as sending
from support.pipelines import Driver, line

RUNS = 6


class Airflow:
    """Refuses the DAGs of one pipeline; ``status`` is its HTTP status."""

    def __init__(self, missing: str) -> None:
        self.missing = missing
        self.is_refused = True
        self.started: list[str] = []

    def trigger(self, *, dag_id: str, run_id: str, **_: Any) -> bool:
        if dag_id.startswith(f"{self.missing}__"):
            raise compat.TargetDagError(f"DAG {dag_id!r} does not exist.", is_refused=self.is_refused)
        self.started.append(run_id)
        return True


@pytest.fixture
def gone(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A pipeline whose DAGs were removed, with more items than there may be runs."""
    drive = Driver(ledger, line("gone"))
    monkeypatch.setattr(sending, "utcnow", lambda: drive.now)
    return drive


def conditions(drive: Driver) -> Conditions:
    with drive.ledger.read() as tx:
        holds = governing.holds(tx, drive.now)
    return Conditions(limits={AIRFLOW_RUNS_KEY: RUNS}, holds={s: h.reason for s, h in holds.items()})


def dispatch(drive: Driver) -> list[Run]:
    return drive.ledger.dispatch(conditions(drive), drive.now)


def refused(drive: Driver, airflow: Airflow, grants: list[Run]) -> None:
    with pytest.raises(compat.TargetDagError, match="does not exist"):
        sending.send_grants(drive.ledger, grants, trigger=airflow.trigger)


def test_however_many_items_wait_for_it_the_others_run(gone: Driver) -> None:
    airflow, other = Airflow("gone"), Driver(gone.ledger, line("alive"))
    gone.conditions = other.conditions = Conditions(limits={AIRFLOW_RUNS_KEY: RUNS})
    grants = gone.intake(*(f"g{n}" for n in range(3 * RUNS)))
    assert len(grants) == RUNS
    assert other.intake("a") == []  # no run is left for it
    refused(gone, airflow, grants)
    sent = sending.send_grants(gone.ledger, dispatch(gone), trigger=airflow.trigger)
    assert [run.pipeline for run in sent] == ["alive"]
    assert {gone.item(f"g{n}").state for n in range(3 * RUNS)} == {ItemState.READY}
    assert gone.usage()[AIRFLOW_RUNS_KEY] == 1


def test_it_says_why_on_the_item_and_among_the_holds(gone: Driver) -> None:
    airflow = Airflow("gone")
    refused(gone, airflow, gone.intake("a"))
    assert any("Hand-off failed: DAG 'gone__first' does not exist." in line for line in gone.log("a"))
    item = gone.item("a")
    with gone.ledger.read() as tx:
        standing = reports.standings(tx, [item], conditions(gone), gone.now)[item.id]
    assert "DAG 'gone__first' does not exist." in standing.text
    assert item.attempts == 0


def test_once_it_is_there_its_items_run_each_once(gone: Driver) -> None:
    airflow = Airflow("gone")
    refused(gone, airflow, gone.intake("a", "b"))
    assert dispatch(gone) == []
    airflow.missing = "none"
    gone.now += SHORTEST_DAG_HOLD
    sent = sending.send_grants(gone.ledger, dispatch(gone), trigger=airflow.trigger)
    assert sorted(airflow.started) == sorted(run.run_id for run in sent)
    assert len(sent) == 2
    assert dispatch(gone) == []


def test_it_is_tried_again_at_growing_intervals(gone: Driver) -> None:
    airflow = Airflow("gone")
    grants, pauses = gone.intake("a"), []
    for _ in range(7):
        refused(gone, airflow, grants)
        begun = gone.now
        while not (grants := dispatch(gone)):
            gone.later(seconds=10)
        pauses.append(gone.now - begun)
    assert pauses[:3] == [SHORTEST_DAG_HOLD, 2 * SHORTEST_DAG_HOLD, 4 * SHORTEST_DAG_HOLD]
    assert set(pauses[5:]) == {LONGEST_DAG_HOLD}
    gone.now += timedelta(hours=1)
    refused(gone, airflow, grants)
    gone.now += SHORTEST_DAG_HOLD
    assert dispatch(gone), "after a long time without trouble it begins anew"


def test_a_run_that_began_after_all_is_not_taken_back(gone: Driver) -> None:
    """Its sender was killed behind the trigger; then the DAG's file broke."""
    [run] = gone.intake("a")
    gone.guard(run)
    refused(gone, Airflow("gone"), [run])
    assert gone.item("a").state is ItemState.RUNNING
    assert gone.usage()[AIRFLOW_RUNS_KEY] == 1


def test_a_run_that_was_taken_back_and_starts_late_works_for_nobody(gone: Driver) -> None:
    [late] = gone.intake("a")
    refused(gone, Airflow("gone"), [late])
    gone.now += SHORTEST_DAG_HOLD
    [again] = dispatch(gone)
    assert gone.guard(late).decision.action.value == "skip_superseded"
    assert gone.guard(again).decision.action.value == "go_on"
    assert gone.run(late).result is RunResult.WITHDRAWN


def test_an_api_server_that_does_not_answer_takes_nothing_back(gone: Driver) -> None:
    airflow = Airflow("gone")
    airflow.is_refused = False
    [run] = gone.intake("a")
    refused(gone, airflow, [run])
    assert gone.item("a").state is ItemState.GRANTED
    gone.later(hours=1)
    assert [r.id for r in gone.ledger.unconfirmed(gone.now)] == [run.id]

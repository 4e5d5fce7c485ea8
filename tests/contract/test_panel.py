"""A panel's verdict on both databases: what is missing is named, and its class says whether to try again."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_relay.core.errors import ErrorClass
from airflow_relay.core.panel import Panel
from airflow_relay.item_context import ItemView
from airflow_relay.ledger import jobs
from airflow_relay.ledger.jobs import JobEnd, JobPhase, JobPlace
from airflow_relay.operators import panel as operators
from airflow_relay.operators.panel import CRITICS_TASK_ID, PanelIncompleteError, decide
from support.pipelines import Driver

PANEL = Panel(critics=("structure", "voice", "ethics"), threshold=8)


class Round:
    """A run of the panel's stage, and what its critics have come to."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        (self.run,) = drive.intake("note")
        self.found: dict[str, dict[str, Any]] = {}

    def ends(self, critic: str, phase: JobPhase, error: ErrorClass | None = None) -> jobs.Job:
        place = JobPlace(
            item_id=self.run.item_id,
            stage="first",
            visit=1,
            task_id=CRITICS_TASK_ID,
            map_index=PANEL.critics.index(critic),
        )
        with self.drive.ledger.write() as tx:
            begun = jobs.begin(
                tx,
                place,
                fingerprint="f",
                run=self.run.id,
                attempt="1",
                protocol="responses",
                conn_id="relay_agent",
                now=self.drive.now,
            )
            stored = self.drive.ledger.prepare({}, "line", "note", "job") if error is None else None
            end = JobEnd(phase=phase, text="ended", error_class=error and error.value, stored=stored)
            return jobs.ended(tx, begun.job.id, end, now=self.drive.now)

    def scores(self, critic: str, score: float, *findings: dict[str, Any]) -> None:
        job = self.ends(critic, JobPhase.SUCCEEDED)
        self.found[critic] = {
            "critic": critic,
            "score": score,
            "data": {"score": score, "findings": list(findings)},
            "job": {"key": job.key},
        }

    def decide(self) -> dict[str, Any]:
        item = ItemView(self.drive.item("note"), self.drive.run(self.run))
        return decide(PANEL, self.found, item, findings_field="data.findings")

    def incomplete(self) -> PanelIncompleteError:
        with pytest.raises(PanelIncompleteError) as caught:
            self.decide()
        return caught.value


@pytest.fixture
def panel(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> Round:
    monkeypatch.setattr(operators, "get_ledger", lambda: drive.ledger)
    return Round(drive)


def test_a_complete_round_gives_outcome_scores_and_all_findings(panel: Round) -> None:
    panel.scores("ethics", 6)
    panel.scores("voice", 8, {"code": "monotone"})
    panel.scores("structure", 9.5, {"code": "few_headings"})
    decided = panel.decide()
    assert decided["outcome"] == "revise"
    assert decided["average"] == 7.833
    assert (decided["round"], decided["rounds"]) == (1, 3)
    assert decided["feedback"] == [
        {"code": "few_headings", "critic": "structure"},
        {"code": "monotone", "critic": "voice"},
    ]


def test_a_partial_round_names_who_is_missing_and_why_and_may_be_tried_again(panel: Round) -> None:
    panel.scores("structure", 9)
    panel.ends("voice", JobPhase.CANCELLED, ErrorClass.TIMEOUT)
    error = panel.incomplete()
    assert "1 of 3 critics have finished in round 1: structure 9." in str(error)
    assert "Missing: voice (timeout), ethics (never asked)" in str(error)
    assert error.verdict.error_class is ErrorClass.TIMEOUT
    assert error.verdict.retryable


def test_a_critic_that_no_run_can_bring_back_makes_the_round_a_persons_business(panel: Round) -> None:
    panel.ends("structure", JobPhase.CANCELLED, ErrorClass.TIMEOUT)
    panel.ends("voice", JobPhase.REFUSED, ErrorClass.REFUSAL)
    assert not panel.incomplete().verdict.retryable


def test_a_score_that_could_not_be_read_is_asked_for_again_and_the_others_are_kept(panel: Round) -> None:
    panel.scores("structure", 9)
    unreadable = panel.ends("voice", JobPhase.SUCCEEDED)
    with panel.drive.ledger.write() as tx:
        jobs.drop_kept(tx, panel.run.item_id, now=panel.drive.now, key=unreadable.key)
    error = panel.incomplete()
    assert "voice (its score could not be read)" in str(error)
    assert error.verdict.retryable
    with panel.drive.ledger.read() as tx:
        assert [job.map_index for job in jobs.kept_of_item(tx, panel.run.item_id)] == [0]

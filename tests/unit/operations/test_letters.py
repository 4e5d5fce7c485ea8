"""What the tick does for dead letters, and how one is shown and answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_relay import compat
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.hooks import task_logs
from airflow_relay.ledger import dead_letters
from airflow_relay.operators import letter_question, letters
from airflow_relay.operators.letter_question import DISCARD, REDRIVE, SKIP_STAGE
from support.pipelines import Driver, loop


@pytest.fixture(autouse=True)
def _clock(monkeypatch, drive):
    for module in (letters, letter_question):
        monkeypatch.setattr(module, "utcnow", lambda: drive.now)


@pytest.fixture
def logs(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(task_logs.conf, "get", lambda *_a, **_k: str(tmp_path))
    return tmp_path


@pytest.fixture
def triggered(monkeypatch) -> list[str]:
    seen: list[str] = []

    def trigger(*, dag_id: str, run_id: str, **_: object) -> bool:
        assert dag_id == "relay__dead_letter"
        new = run_id not in seen
        seen.append(run_id)
        return new

    monkeypatch.setattr(compat, "trigger_dag_run", trigger)
    monkeypatch.setattr(compat, "task_states", lambda _dag, _runs: {})
    return seen


def dead(drive, *keys: str) -> None:
    for run in drive.intake(*keys):
        drive.guard(run)
        drive.end(run, result=RunResult.FAILED, error="auth")


def only_letter(drive) -> dead_letters.DeadLetter:
    with drive.ledger.read() as tx:
        (letter,) = dead_letters.listing(tx)
    return letter


def write_log(folder: Path, run, task: str, *lines: str) -> None:
    file = folder / f"dag_id={run.dag_id}" / f"run_id={run.run_id}" / f"task_id={task}" / "attempt=1.log"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines))


def test_each_tick_asks_every_question_by_its_own_run_id(drive, logs, triggered):
    dead(drive, "a", "b")
    assert letters.tend(drive.ledger) == {"logs": 2, "questions": 2}
    assert letters.tend(drive.ledger) == {"logs": 0, "questions": 0}
    assert len(set(triggered)) == 2


def test_a_question_that_is_over_without_an_answer_is_asked_again_after_a_while(
    drive, logs, triggered, monkeypatch
):
    """Its run failed, or somebody marked it: it must not keep one of the 20 places for ever."""
    states = {"awaits": "awaiting_input", "over": "failed"}
    dead(drive, *states)
    letters.tend(drive.ledger)
    with drive.ledger.read() as tx:
        runs = {letter.key: f"relay:letter:{letter.id}" for letter in dead_letters.listing(tx)}
    known = {runs[key]: {"ask": state} for key, state in states.items()}
    monkeypatch.setattr(compat, "task_states", lambda _dag, ids: {i: known[i] for i in ids if i in known})
    assert letters.tend(drive.ledger)["questions"] == 0
    drive.later(hours=6)
    assert letters.tend(drive.ledger)["questions"] == 1
    again = f"{runs['over']}:2"
    assert triggered[-1] == again
    known[again] = {"ask": "failed"}
    assert letters.tend(drive.ledger)["questions"] == 0
    drive.later(days=30)
    for number in range(3, 15):
        letters.tend(drive.ledger)
        known[f"{runs['over']}:{number}"] = {"ask": "failed"}
    assert len(set(triggered)) == 1 + letters.ASKED_AT_MOST


def test_a_deployment_without_the_dead_letter_dag_is_no_error(drive, logs, monkeypatch):
    def missing(**_: object) -> bool:
        raise compat.TargetDagError("DAG 'relay__dead_letter' does not exist.")

    monkeypatch.setattr(compat, "trigger_dag_run", missing)
    monkeypatch.setattr(compat, "task_states", lambda _dag, _runs: {})
    dead(drive, "a")
    assert letters.tend(drive.ledger)["questions"] == 0


def test_the_last_log_lines_are_kept_readable_and_without_secrets(drive, logs, triggered):
    (run,) = drive.intake("a")
    record = {
        "timestamp": "2026-03-02T09:00:00Z",
        "level": "error",
        "event": "Task failed with token=sk-proj-abcdefghijklmnop1234567890",
        "error_detail": [{"exc_type": "PermissionError", "exc_value": "401"}],
    }
    write_log(logs, run, "work", "plain line", json.dumps(record))
    write_log(logs, run, "hand_off", "not of interest")
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error="auth")
    letters.tend(drive.ledger)
    shown = letter_question.describe(drive.ledger, only_letter(drive))
    assert "plain line" in shown
    assert "PermissionError: 401" in shown
    assert "abcdefghijklmnop" not in shown
    assert "not of interest" not in shown


def test_only_the_end_of_a_long_log_is_kept(drive, logs):
    (run,) = drive.intake("a")
    write_log(logs, run, "work", *(f"line {n}" for n in range(100_000)))
    assert task_logs.last_lines(run.dag_id, run.run_id, limit=2) == ["line 99998", "line 99999"]


def test_a_letter_tells_what_was_tried_and_what_the_answers_do(drive, logs, triggered):
    dead(drive, "a*b")
    letters.tend(drive.ledger)
    shown = letter_question.describe(drive.ledger, only_letter(drive))
    assert "a\\*b" in shown
    assert "first failed \\(auth\\)" in shown
    assert "*Skip stage* goes on behind it." in shown


@pytest.mark.parametrize(
    ("choice", "form", "state", "stage"),
    [
        (REDRIVE, {}, ItemState.READY, "first"),
        (REDRIVE, {"stage": "third"}, ItemState.READY, "third"),
        (SKIP_STAGE, {}, ItemState.READY, "second"),
        (DISCARD, {}, ItemState.DISCARDED, "first"),
    ],
)
def test_an_answer_is_carried_out(drive, choice, form, state, stage):
    dead(drive, "a")
    letter = only_letter(drive)
    done = letter_question.carry_out(drive.ledger, letter, choice, form, by="ada")
    assert done.changed == 1
    assert (drive.item("a").state, drive.item("a").stage) == (state, stage)
    with drive.ledger.read() as tx:
        found = dead_letters.by_id(tx, letter.id)
    assert found is not None
    assert found.resolved_by == "ada"
    assert "nothing to ask" in letter_question.decided_elsewhere(found)


def test_a_router_says_in_its_question_that_it_needs_an_outcome(ledger, monkeypatch):
    drive = Driver(ledger, loop())
    (run,) = drive.intake("a")
    (run,) = drive.serve(run)
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error="auth")
    letter = only_letter(drive)
    assert "needs an outcome: again, bad, ok" in letter_question.describe(ledger, letter)
    with pytest.raises(PipelineError, match="name one of again, bad, ok"):
        letter_question.carry_out(ledger, letter, SKIP_STAGE, {}, by="ada")
    letter_question.carry_out(ledger, letter, SKIP_STAGE, {"outcome": "ok"}, by="ada")
    assert drive.item("a").stage == "ship"

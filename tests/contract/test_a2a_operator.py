"""The operator against the A2A SDK's own server, over the wire."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from airflow_relay import compat
from airflow_relay.crash import CrashPoint
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.item_context import forget_item
from airflow_relay.ledger.jobs import JobPhase
from airflow_relay.operators import agent_attempt
from airflow_relay.operators import agent_job_errors as errors
from support.a2a_server import A2AServerProcess
from support.agent_tasks import AgentTask

WAYS = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def way(request):
    with A2AServerProcess(*request.param) as server:
        server.version = request.param[1]
        yield server


@pytest.fixture
def states(monkeypatch):
    known = {}
    monkeypatch.setattr(compat, "task_states", lambda dag_id, run_ids: {run_ids[0]: dict(known)})
    return known


@pytest.fixture
def ask(way, ledger, states, monkeypatch):
    """Makes an agent task that asks the server."""
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", way.url)
    monkeypatch.setattr(ledger_hook, "_ledger_for", lambda pid: ledger)
    forget_item()
    yield lambda text, **settings: AgentTask(
        ledger, states, input=text, model=None, protocol="a2a", **settings
    )
    forget_item()


def test_a_job_from_submit_to_output(way, ask):
    before = way.stats()["executed"]
    task = ask("slow")
    task.execute()
    assert task.deferred is not None
    value = task.resume(task.watch())
    assert value["text"] == "answer to: slow"
    assert way.stats()["executed"] == before + 1
    assert task.job().phase is JobPhase.SUCCEEDED


def test_an_answer_without_a_task_is_a_result(ask):
    assert ask("direct").run()["text"] == "direct reply"


@pytest.mark.parametrize(
    ("text", "kind", "phase"),
    [
        ("fail", errors.AgentJobFailedError, JobPhase.FAILED),
        ("crash", errors.AgentJobFailedError, JobPhase.FAILED),
        ("reject", errors.AgentJobRefusedError, JobPhase.REFUSED),
        ("ask", errors.AgentJobBlockedError, JobPhase.BLOCKED),
        ("empty", errors.AgentJobEmptyError, JobPhase.FAILED),
    ],
)
def test_ends_that_are_no_success(ask, text, kind, phase):
    task = ask(text)
    with pytest.raises(kind):
        task.run()
    assert task.job().phase is phase


def test_a_job_past_its_deadline_is_cancelled(way, ask):
    before = way.stats()["cancelled"]
    task = ask("hang", timeout=timedelta(seconds=1))
    with pytest.raises(errors.AgentJobTimeoutError):
        task.run()
    assert task.job().phase is JobPhase.CANCELLED
    assert way.stats()["cancelled"] == before + 1


def test_a_person_who_ends_the_task_cancels_the_job(ask, states):
    task = ask("hang")
    task.execute()
    states["ask"] = "failed"
    asyncio.run(task.trigger().on_kill())
    assert task.job().phase is JobPhase.CANCELLED


def test_a_job_whose_acknowledgement_was_lost_is_found_by_its_context(way, ask, monkeypatch):
    class ProcessDied(BaseException):
        pass

    def die(point):
        if point is CrashPoint.JOB_SUBMITTED:
            raise ProcessDied

    before = way.stats()["executed"]
    task = ask("slow", on_orphan="fail")
    with monkeypatch.context() as patched:
        patched.setattr(agent_attempt, "crash_point", die)
        with pytest.raises(ProcessDied):
            task.execute()
    assert task.job().phase is JobPhase.INTENDED
    if way.version == "0.3":  # has no list of tasks: only a person can look
        with pytest.raises(errors.AgentJobOrphanedError):
            task.new_try().run()
    else:
        assert task.new_try().run()["text"] == "answer to: slow"
    assert way.stats()["executed"] == before + 1

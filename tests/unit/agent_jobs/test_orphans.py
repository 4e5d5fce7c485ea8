"""Jobs that nobody waits for are stopped by the tick, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_relay.clock import utcnow
from airflow_relay.core.item import Change
from airflow_relay.core.states import EventKind, ItemState, RunState
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.jobs import JobPhase
from airflow_relay.operators import agent_job_errors as errors
from airflow_relay.operators.agent_orphans import cancel_orphans

WORKING = {"fault": "stuck_queued"}


@pytest.fixture
def running(server, task):
    ask = task(metadata=WORKING)
    ask.execute()
    return ask


def status_of(server, ask):
    return next(job["status"] for job in server.jobs() if job["id"] == ask.job().ref["id"])


def supersede(ledger, ask):
    run = ledger.find_run(ask.dag_id, ask.run_id)
    with ledger.write() as tx:
        runs.change(tx, run.id, state=RunState.SUPERSEDED)


def move_item(ledger, ask, **values):
    with ledger.write() as tx:
        item = items.locked(tx, ask.item_id)
        items.perform(tx, item, Change(kind=EventKind.MOVED, at=utcnow(), text="moved", set=values))


def test_a_running_job_of_the_items_current_run_is_left_alone(server, running, ledger):
    assert cancel_orphans(ledger) == 0
    assert status_of(server, running) == "queued"
    assert running.job().cancel_requested_at is None


def test_the_job_of_a_superseded_run_is_cancelled_once_the_item_is_elsewhere(server, running, ledger):
    supersede(ledger, running)
    move_item(ledger, running, stage="only", visits={"only": 2})
    assert cancel_orphans(ledger) == 1
    assert status_of(server, running) == "cancelled"
    assert running.job().phase is JobPhase.CANCELLED
    assert cancel_orphans(ledger) == 0


def test_the_job_of_a_run_that_a_person_marked_done_is_cancelled_once_the_item_has_moved_on(
    server, running, ledger
):
    run = ledger.find_run(running.dag_id, running.run_id)
    with ledger.write() as tx:
        runs.change(tx, run.id, state=RunState.CLOSED)
    assert cancel_orphans(ledger) == 0
    move_item(ledger, running, stage="next", visits={"next": 1})
    assert cancel_orphans(ledger) == 1
    assert status_of(server, running) == "cancelled"


def test_the_job_of_a_superseded_run_is_kept_for_the_run_that_took_its_place(server, running, ledger):
    supersede(ledger, running)
    assert cancel_orphans(ledger) == 0
    assert status_of(server, running) == "queued"


@pytest.mark.parametrize("state", [ItemState.DISCARDED, ItemState.DONE])
def test_the_job_of_a_finished_item_is_cancelled(server, running, ledger, state):
    move_item(ledger, running, state=state)
    assert cancel_orphans(ledger) == 1
    assert status_of(server, running) == "cancelled"


def test_a_cancel_that_was_refused_is_repeated_until_it_is_confirmed(server, task, ledger):
    ask = task(metadata=WORKING, timeout=timedelta(seconds=1))
    server.set_fault("http_status", point="cancel", status=503, times=2)
    with pytest.raises(errors.AgentJobTimeoutError):
        ask.run()
    assert ask.job().phase is JobPhase.SUBMITTED
    assert [cancel_orphans(ledger), cancel_orphans(ledger)] == [0, 1]
    assert ask.job().phase is JobPhase.CANCELLED


def test_a_server_that_is_down_is_asked_again_at_the_next_tick(running, ledger, monkeypatch):
    move_item(ledger, running, state=ItemState.DISCARDED)
    with monkeypatch.context() as patched:
        patched.setenv("AIRFLOW_CONN_RELAY_AGENT", "http://127.0.0.1:9")
        assert cancel_orphans(ledger) == 0
    assert running.job().cancel_requested_at is not None
    assert cancel_orphans(ledger) == 1

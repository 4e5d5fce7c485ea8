"""Agent jobs on a real Airflow: deferred, cleared, killed, and paid for once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from airflow_relay.crash import CrashPoint
from airflow_relay.ledger.jobs import JobPhase
from integration.relay_on_airflow import RelayOnAirflow
from support.agent_items import CONNECTION, AgentItems
from support.agent_server import AgentServerProcess

STUCK = "stuck_queued"


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess(token="of-the-test") as running:
        yield running


@pytest.fixture(scope="module")
def relay(airflow_instance: AirflowInstance, server: AgentServerProcess) -> Iterator[RelayOnAirflow]:
    airflow_instance.api.request(
        "POST",
        "connections",
        json={
            "connection_id": CONNECTION,
            "conn_type": "http",
            "host": server.url,
            "password": server.token,
        },
    )
    made = RelayOnAirflow(airflow_instance, "agents", "ask")
    airflow_instance.wait_for_dags("agents__ask", "agents_plain")
    yield made
    made.close()


@pytest.fixture(scope="module")
def agents(relay: RelayOnAirflow, server: AgentServerProcess) -> AgentItems:
    return AgentItems(relay, server)


def deferred(relay: RelayOnAirflow, key: str) -> Any:
    """Wait until the item's agent task is deferred; returns its run."""
    relay.wait_for(key, ItemState.RUNNING)
    run = relay.run_of(key, "ask")
    relay.airflow.wait_for_task(run.dag_id, run.run_id, "ask", states=frozenset({"deferred"}))
    return run


def test_a_stage_defers_its_job_and_hands_the_answer_on(relay, agents, server):
    key = agents.start("agent")
    deferred(relay, key)
    relay.wait_for(key, ItemState.DONE)
    agents.assert_paid_once(key)
    (job,) = agents.jobs_of(key)
    assert relay.results(key)["ask"] == {"title": key, "job": job.ref["id"]}
    assert job.input_tokens
    assert any("submitted" in line for line in relay.log(key))


def test_a_clear_of_the_deferred_task_attaches_to_the_running_job(relay, agents, server):
    key = agents.start("cleared", fault="slow:seconds=15")
    run = deferred(relay, key)
    first = relay.api.task_instance(run.dag_id, run.run_id, "ask")
    relay.api.clear_run(run.dag_id, run.run_id)
    relay.airflow.wait(
        lambda: agents.jobs_of(key)[0].attempt not in (first["id"], None), what="the new attempt to attach"
    )
    relay.wait_for(key, ItemState.DONE)
    agents.assert_paid_once(key)
    assert server.stats()["cancels"] == 0


def test_work_that_is_paid_for_is_kept_when_a_later_step_fails(relay, agents, server):
    gate = relay.signals / "use_fails"
    gate.touch()
    key = agents.start("kept")
    relay.wait_for(key, ItemState.FAILED)
    run = relay.run_of(key, "ask")
    relay.wait_for_run(run, "failed")
    gate.unlink()
    relay.api.clear_run(run.dag_id, run.run_id)
    relay.wait_for(key, ItemState.DONE)
    agents.assert_paid_once(key)


@pytest.mark.parametrize("state", ["failed", "success"])
def test_ending_the_deferred_task_by_hand_cancels_its_job(relay, agents, server, state):
    key = agents.start(f"by-hand-{state}", fault=STUCK)
    run = deferred(relay, key)
    (job,) = agents.jobs_of(key)
    # Airflow kills a trigger only once a triggerer has it: the first poll is the worker's, the second its.
    relay.airflow.wait(lambda: agents.on_server(job)[0]["polls"] > 1, what="the trigger to run")
    relay.api.set_task_state(run.dag_id, run.run_id, "ask", state)
    relay.airflow.wait(lambda: agents.on_server(job)[0]["status"] == "cancelled", what="the job's cancel")
    relay.airflow.wait(
        lambda: agents.jobs_of(key)[0].phase is JobPhase.CANCELLED, what="the cancel in the ledger"
    )


def test_a_refusal_goes_to_a_person_without_another_try(relay, agents, server):
    key = agents.start("refused", fault="refusal")
    item = relay.wait_for(key, ItemState.DEAD)
    assert item.error_class == "refusal"
    assert [job.phase for job in agents.jobs_of(key)] == [JobPhase.REFUSED]


@pytest.mark.parametrize(
    "point",
    [
        # All of them, with the triggerer killed too, are in `make test-crash`; the short suite has this one.
        pytest.param(point, marks=[] if point is CrashPoint.JOB_SUBMITTED else pytest.mark.slow)
        for point in CrashPoint
        if point.value.startswith("job.")
    ],
)
def test_a_worker_killed_at_any_point_has_paid_for_one_job(relay, agents, server, point):
    home = Path(relay.airflow.home)
    memory = home / f"died-{uuid.uuid4().hex}"
    (home / "crash_at").write_text(f"{point.value}@{memory}")
    try:
        key = agents.start(point.value.replace(".", "-"))
        relay.wait_for(key, ItemState.DONE, timeout=120)
    finally:
        (home / "crash_at").unlink()
    assert memory.exists(), "nothing was killed"
    agents.assert_paid_once(key)


def test_outside_of_stages_each_mapped_task_keeps_its_own_job(relay, agents, server):
    before = server.stats()["jobs_created"]
    run_id = relay.api.trigger_dag("agents_plain")
    assert relay.airflow.wait_for_run("agents_plain", run_id)["state"] == "success"
    assert server.stats()["jobs_created"] == before + 3
    titles = {
        relay.api.xcom("agents_plain", run_id, "ask", map_index=index)["data"]["title"] for index in range(3)
    }
    assert titles == {"Page 0", "Page 1", "Page 2"}
    relay.api.clear_run("agents_plain", run_id)
    relay.airflow.wait_for_run("agents_plain", run_id)
    assert server.stats()["jobs_created"] == before + 3

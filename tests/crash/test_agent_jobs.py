"""Random kills of task processes and of the triggerer: every job that was submitted is paid for once."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from airflow_relay.ledger import jobs
from airflow_relay.ledger.jobs import JobPhase
from integration.relay_on_airflow import RelayOnAirflow
from support.agent_server import AgentServerProcess

DAGS_FOLDER = Path(__file__).parent.parent / "integration" / "dags_folder"
ITEMS = 20
KILLS = 50
TRIGGERER_KILLS = 4
SEED = 4711

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess() as running:
        yield running


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, server, postgres_server) -> Iterator[AirflowInstance]:
    instance = AirflowInstance(
        tmp_path_factory.mktemp("airflow") / "home",
        [DAGS_FOLDER],
        postgres_server=postgres_server,
        connections={"agent_of_test": server.url},
        extra_env={"AGENT_JOBS_RETRIES": "100"},
        config={"scheduler": {"task_instance_heartbeat_timeout": "20"}},
    )
    with instance:
        yield instance


def kill_a_task(airflow: AirflowInstance, chance: random.Random) -> bool:
    """SIGKILL one process that runs a task now; false when there is none."""
    workers = psutil.Process(airflow.component("scheduler").pid).children()
    running = [child for worker in workers for child in worker.children()]
    if not running:
        return False
    try:
        chance.choice(running).send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def test_fifty_random_kills_over_twenty_jobs_lose_none_and_pay_none_twice(airflow, server):
    chance = random.Random(SEED)
    relay = RelayOnAirflow(airflow, "agents", "ask")
    airflow.wait_for_dags("agents__ask")
    folder = Path(airflow.home) / "intake"
    folder.mkdir()
    keys = [f"item-{n}" for n in range(ITEMS)]
    for key in keys:
        item = {"key": key, "payload": {"fault": f"slow:seconds={chance.randint(1, 60)}"}}
        (folder / f"{key}.json").write_text(json.dumps(item))
    airflow.api.trigger_dag("agents__ask")
    airflow.wait(lambda: relay.item(keys[-1]), what="the items to be registered", timeout=180)

    def unfinished() -> list[str]:
        return [key for key in keys if relay.item(key).state is not ItemState.DONE]

    def kill_or_end() -> bool:
        return kill_a_task(airflow, chance) or not unfinished()

    for number in range(1, KILLS + 1):
        airflow.wait(kill_or_end, what="a task to kill", timeout=300, interval=0.02)
        if number % (KILLS // TRIGGERER_KILLS) == 0:
            airflow.restart("triggerer")
    airflow.wait(lambda: not unfinished(), what="all items to be done", timeout=1200, interval=1)

    with relay.ledger.read() as tx:
        known = [job for key in keys for job in jobs.of_item(tx, relay.item(key).id)]
    submitted = [job for job in known if job.ref is not None]
    on_server = {job["id"]: job for job in server.jobs()}
    assert sorted(job.ref["id"] for job in submitted) == sorted(on_server)
    assert Counter(job["idempotency_key"] for job in on_server.values()) == Counter(j.key for j in submitted)
    assert [job.phase for job in known] == [JobPhase.SUCCEEDED] * ITEMS
    assert server.stats()["jobs_created"] == ITEMS
    relay.close()

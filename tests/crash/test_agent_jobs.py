"""Kill -9 of workers and of the triggerer: every job that was submitted is paid for once.

Workers that die alone at a named point are in ``tests/integration/test_agent_jobs.py``.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from airflow_relay.crash import CRASH_VARIABLE, CrashPoint
from integration.relay_on_airflow import RelayOnAirflow
from polling import wait_until
from support.agent_items import CONNECTION, AgentItems
from support.agent_server import AgentServerProcess

DAGS_FOLDER = Path(__file__).parent.parent / "integration" / "dags_folder"
ITEMS = 20
KILLS = 50
TRIGGERER_KILLS = 4
SEED = 4711
OF_THE_WORKER = [point for point in CrashPoint if point.value.startswith("job.")]
OF_THE_TRIGGERER = [point for point in CrashPoint if point.value.startswith("trigger.")]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess() as running:
        yield running


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that every process of the Airflow looks into for the point at which it is to die."""
    return tmp_path_factory.mktemp("armed") / "crash_at"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, server, postgres_server, armed) -> Iterator[AirflowInstance]:
    instance = AirflowInstance(
        tmp_path_factory.mktemp("airflow") / "home",
        [DAGS_FOLDER],
        postgres_server=postgres_server,
        connections={CONNECTION: server.url},
        extra_env={
            "AGENT_JOBS_RETRIES": "100",
            "RELAY_TEST_MODE": "1",
            CRASH_VARIABLE: f"<{armed}",
        },
        config={
            "scheduler": {"task_instance_heartbeat_timeout": "20"},
            "triggerer": {"triggerer_health_check_threshold": "10"},
        },
    )
    with instance:
        instance.wait_for_dags("agents__ask")
        yield instance


@pytest.fixture(scope="module")
def relay(airflow: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(airflow, "agents", "ask")
    yield made
    made.close()


@pytest.fixture(scope="module")
def agents(relay: RelayOnAirflow, server: AgentServerProcess) -> AgentItems:
    return AgentItems(relay, server)


def die_once_at(armed: Path, point: CrashPoint) -> Path:
    """The next process that comes to this point dies; returns the file that appears then."""
    memory = armed.with_name(f"died-{uuid.uuid4().hex}")
    new = armed.with_suffix(".new")  # nobody reads half of it
    new.write_text(f"{point.value}@{memory}")
    new.replace(armed)
    return memory


@pytest.mark.parametrize("point", OF_THE_WORKER)
def test_a_worker_and_the_triggerer_killed_at_a_point_have_paid_for_one_job(
    airflow, relay, agents, armed, point
):
    memory = die_once_at(armed, point)
    key = agents.start(point.value.replace(".", "-"))
    airflow.wait(memory.exists, what="a worker to die", timeout=180)
    airflow.restart("triggerer")
    relay.wait_for(key, ItemState.DONE, timeout=300)
    agents.assert_paid_once(key)
    agents.assert_books_agree()


@pytest.mark.parametrize("point", OF_THE_TRIGGERER)
def test_a_triggerer_killed_at_a_point_loses_no_job(airflow, relay, agents, armed, point):
    memory = die_once_at(armed, point)
    keys = [agents.start(point.value.replace(".", "-"), fault=f"slow:seconds={s}") for s in (3, 30)]
    # Not the instance's own wait: it would report the death that is waited for.
    wait_until(memory.exists, what="the triggerer to die", timeout=180)
    airflow.restart("triggerer")
    for key in keys:
        relay.wait_for(key, ItemState.DONE, timeout=300)
        agents.assert_paid_once(key)
    agents.assert_books_agree()


def kill_a_task(airflow: AirflowInstance, chance: random.Random) -> bool:
    """SIGKILL one process that runs a task now; false when there is none.

    The executor's own workers are left alone: one that dies by itself can leave the lock of the executor's
    queue taken, and then nothing starts for Airflow's ten minutes.
    """
    try:
        workers = psutil.Process(airflow.component("scheduler").pid).children()
        running = [task for worker in workers for task in worker.children()]
        if not running:
            return False
        chance.choice(running).kill()
    except psutil.NoSuchProcess:  # it ended meanwhile
        return False
    return True


def test_fifty_random_kills_over_twenty_jobs_lose_none_and_pay_none_twice(airflow, relay, agents, server):
    chance = random.Random(SEED)
    before = server.stats()["jobs_created"]
    keys = [relay.new_key("random") for _ in range(ITEMS)]
    agents.start_all({key: {"fault": f"slow:seconds={chance.randint(1, 60)}"} for key in keys})
    # Earlier, only the intake's hand-off runs, and every kill would be its.
    airflow.wait(lambda: server.stats()["jobs_created"] > before, what="the first job", timeout=180)

    def kill_or_end() -> bool:
        return kill_a_task(airflow, chance) or not agents.unfinished(keys)

    for number in range(1, KILLS + 1):
        airflow.wait(kill_or_end, what="a task to kill", timeout=300, interval=0.02)
        if number % (KILLS // TRIGGERER_KILLS) == 0:
            airflow.restart("triggerer")
    airflow.wait(lambda: not agents.unfinished(keys), what="all items to be done", timeout=1200, interval=1)
    for key in keys:
        agents.assert_paid_once(key)
    agents.assert_books_agree()
    assert server.stats()["jobs_created"] == before + ITEMS

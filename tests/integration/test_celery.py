"""The arrangement of docker-compose.yaml, in processes: Celery workers, Redis, the ledger on PostgreSQL."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from airflow_relay.hooks.objects import ObjectFolder
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.errors import UnknownItemError
from airflow_relay.ledger.store import Ledger
from databases import create_database, drop_database
from integration.conftest import DAGS_FOLDER

STAGES = ("first", "second", "choose", "last")
WORKERS = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def ledger_url(postgres_server: str) -> Iterator[str]:
    url = create_database(postgres_server, prefix="relay_test_celery")
    yield url
    engine_for(url).dispose()
    drop_database(postgres_server, url)


@pytest.fixture(scope="module")
def celery(tmp_path_factory, postgres_server: str, redis_server: str, ledger_url: str):
    queue = f"relay_test_{uuid.uuid4().hex[:8]}"
    instance = AirflowInstance(
        tmp_path_factory.mktemp("celery") / "home",
        [DAGS_FOLDER],
        postgres_server=postgres_server,
        executor="CeleryExecutor",
        config={
            "celery": {"broker_url": redis_server, "worker_concurrency": "2"},
            "operators": {"default_queue": queue},
        },
        connections={"relay_ledger": ledger_url.replace("postgresql+psycopg2://", "postgresql://")},
    )
    with instance:
        instance.cli("relay", "init")
        for name in WORKERS:
            command = ["celery", "worker", "-q", queue, "-H", f"{name}@%h", "--skip-serve-logs"]
            instance.add_process(name, [sys.executable, "-m", "airflow", *command])
        instance.wait_for_dags(*(f"by_hand__{stage}" for stage in STAGES))
        yield instance


@pytest.fixture(scope="module")
def ledger(celery: AirflowInstance, ledger_url: str) -> Ledger:
    return Ledger(ledger_url, ObjectFolder(f"file://{celery.home}/relay/results"))


def _finished(ledger: Ledger, keys: list[str]) -> bool:
    with ledger.read() as tx:
        try:
            return all(items.find(tx, key, "by_hand").state is ItemState.DONE for key in keys)
        except UnknownItemError:  # not registered yet
            return False


@pytest.mark.timeout(600)
def test_items_flow_to_their_end_on_celery_workers(celery: AirflowInstance, ledger: Ledger):
    keys = [f"on celery {number}" for number in range(4)]
    for key in keys:
        celery.api.trigger_dag("by_hand__first", {"item_id": key})
    celery.wait(lambda: _finished(ledger, keys), what="all items to be done", timeout=240, interval=0.5)

    with ledger.read() as tx:
        for key in keys:
            stages = [run.stage for run in runs.of_item(tx, items.find(tx, key, "by_hand").id)]
            assert stages == list(STAGES)
    for name in WORKERS:
        log = (celery.log_folder / f"{name}.log").read_text()
        assert "execute_workload" in log, f"{name} had nothing to do"
        assert "could not preload" not in log

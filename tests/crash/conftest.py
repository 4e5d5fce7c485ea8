"""What tests that kill processes share: ledgers of their own on both databases, and an Airflow to kill in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from crash.on_airflow import Switches

DAGS_FOLDER = Path(__file__).parent / "dags_folder"


@pytest.fixture(params=["sqlite", "postgresql"])
def crash_ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty, migrated ledger."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/ledger.db"
        upgrade(url)
        yield url
        engine_for(url).dispose()
        return
    from databases import create_database, drop_database

    server = request.getfixturevalue("postgres_server")
    url = create_database(server, prefix="relay_crash")
    upgrade(url)
    yield url
    engine_for(url).dispose()
    drop_database(server, url)


@pytest.fixture(scope="module")
def crashing_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    """A running Airflow with the DAGs of ``dags_folder``, on PostgreSQL where there is one (CI must)."""
    server = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not server and os.environ.get("CI") == "true":
        pytest.fail("RELAY_TEST_POSTGRES_URL is not set: CI runs Airflow on PostgreSQL", pytrace=False)
    instance = AirflowInstance(
        tmp_path_factory.mktemp("airflow") / "home",
        [DAGS_FOLDER],
        postgres_server=server,
        connections={"fs_default": "fs://"},
        config={
            "dag_processor": {"refresh_interval": "2"},
            # A lost process is noticed after this, not after five minutes.
            "scheduler": {"task_instance_heartbeat_timeout": "30"},
        },
    )
    with instance:
        yield instance


@pytest.fixture
def switches(crashing_airflow: AirflowInstance) -> Iterator[Switches]:
    """Crash points and clock of the task processes to come; none when the test begins and ends."""
    made = Switches(crashing_airflow.home)
    made.clear()
    yield made
    made.clear()

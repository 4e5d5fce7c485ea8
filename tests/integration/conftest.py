"""One real Airflow for the whole session of integration tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_instance import AirflowInstance

OWN_AIRFLOW = frozenset({"test_celery.py", "test_demo.py"})
DAGS_FOLDER = Path(__file__).parent / "dags_folder"


@pytest.fixture(scope="session")
def metadata_server() -> str | None:
    """PostgreSQL where there is one (CI must have one); None stands for SQLite."""
    url = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not url and os.environ.get("CI") == "true":
        pytest.fail("RELAY_TEST_POSTGRES_URL is not set: CI runs Airflow on PostgreSQL", pytrace=False)
    return url


@pytest.fixture(scope="session")
def airflow_instance(
    tmp_path_factory: pytest.TempPathFactory, metadata_server: str | None
) -> Iterator[AirflowInstance]:
    """A running Airflow with the DAGs of ``dags_folder``, unpaused, and the recommended configuration."""
    instance = AirflowInstance(
        tmp_path_factory.mktemp("airflow") / "home",
        [DAGS_FOLDER],
        postgres_server=metadata_server,
        config={"dag_processor": {"refresh_interval": "2"}},
    )
    with instance:
        yield instance


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with an Airflow of their own come before the session's starts: two at once are slow."""
    items.sort(key=lambda item: item.path.name not in OWN_AIRFLOW)

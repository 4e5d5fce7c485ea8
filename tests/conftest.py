"""What all tests share: an Airflow home of their own, and PostgreSQL where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _isolate_airflow() -> None:
    """Airflow reads its settings when it is imported: give it none of the user's, and a home in the checkout.

    The workers of pytest-xdist start at the same time and would write the same airflow.cfg: each has its own.
    """
    for name in list(os.environ):
        if name.startswith(("AIRFLOW_", "_AIRFLOW_")):
            del os.environ[name]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    home = ROOT / ".work" / "airflow-homes" / worker
    home.mkdir(parents=True, exist_ok=True)
    os.environ["AIRFLOW_HOME"] = str(home)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    os.environ["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] = "False"


_isolate_airflow()


def _server_url(variable: str, example: str) -> str:
    """The address of a server that tests need; without one: failure in CI, skip elsewhere."""
    url = os.environ.get(variable)
    if url:
        return url
    reason = f"{variable} is not set ({example})"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: CI leaves no such test out", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """SQLAlchemy URL of the PostgreSQL server for tests."""
    return _server_url("RELAY_TEST_POSTGRES_URL", "postgresql+psycopg2://user:password@host/database")


@pytest.fixture(scope="session")
def redis_server() -> str:
    """URL of the Redis database for tests, the broker of Celery."""
    return _server_url("RELAY_TEST_REDIS_URL", "redis://host:6379/15")


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """URL of an empty database that this session (each worker of it) has for itself."""
    from databases import create_database, drop_database

    url = create_database(postgres_server, prefix="relay_test")
    yield url
    drop_database(postgres_server, url)

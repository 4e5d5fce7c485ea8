"""The same contract on both databases. The schema is built once a session; each test gets it empty."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, text, update

from airflow_relay.hooks import conditions
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from airflow_relay.ledger.schema import OBSERVATION, meta, metadata
from airflow_relay.ledger.store import Ledger
from support.pipelines import Driver, MemoryObjects, line, loop
from support.sweeping import Sweeper
from support.variables import Airflow


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file."""
    file = tmp_path_factory.mktemp("ledger") / "template.db"
    upgrade(f"sqlite:///{file}")
    engine = engine_for(f"sqlite:///{file}")
    with engine.connect() as conn:
        conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return file


@pytest.fixture(scope="session")
def migrated_postgres(postgres_database: str) -> str:
    """A migrated PostgreSQL database."""
    upgrade(postgres_database)
    return postgres_database


def empty(url: str) -> None:
    """Remove every row but the ledger's identity and its lock."""
    tables = ", ".join(t.name for t in metadata.sorted_tables if t.name != "meta")
    with engine_for(url).begin() as conn:
        conn.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        conn.execute(delete(meta).where(meta.c.name == OBSERVATION))


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty ledger."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        url = f"sqlite:///{tmp_path}/ledger.db"
        yield url
        engine_for(url).dispose()
        return
    url = request.getfixturevalue("migrated_postgres")
    empty(url)
    yield url


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    """An empty ledger with an identity of its own: keys of agent jobs are made from it."""
    with engine_for(ledger_url).begin() as conn:
        conn.execute(update(meta).where(meta.c.name == "ledger_id").values(value=str(uuid.uuid4())))
    return Ledger(ledger_url, MemoryObjects())


@pytest.fixture
def drive(ledger: Ledger) -> Driver:
    """A line of three stages."""
    return Driver(ledger, line())


@pytest.fixture
def drive_loop(ledger: Ledger) -> Driver:
    """A draft that a review may send back twice."""
    return Driver(ledger, loop())


@pytest.fixture
def sweeper(drive: Driver) -> Sweeper:
    """The recovery sweep by its default rules."""
    return Sweeper(drive)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """Variables and pause states that a test sets."""
    fake = Airflow()
    monkeypatch.setattr(conditions, "_variable", fake.variables.get)
    monkeypatch.setattr(conditions, "_pause_states", lambda dags: {dag: dag in fake.paused for dag in dags})
    return fake

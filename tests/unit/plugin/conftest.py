"""The page over a real ledger, with an auth manager that knows three users."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.core_api import security
from fastapi import HTTPException, Request
from fastapi.testclient import TestClient

from airflow_relay.clock import utcnow
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from airflow_relay.ledger.store import Ledger
from airflow_relay.plugin import access, views
from airflow_relay.plugin import app as web
from support.page import NASTY
from support.pipelines import Driver, MemoryObjects, line, loop


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "empty.db"
    upgrade(f"sqlite:///{file}")
    engine = engine_for(f"sqlite:///{file}")
    with engine.connect() as conn:
        conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return file


@pytest.fixture
def ledger(empty_ledger: Path, tmp_path: Path) -> Iterator[Ledger]:
    shutil.copy(empty_ledger, tmp_path / "ledger.db")
    url = f"sqlite:///{tmp_path}/ledger.db"
    yield Ledger(url, MemoryObjects())
    engine_for(url).dispose()


@pytest.fixture
def drive(ledger: Ledger) -> Driver:
    """Two pipelines: ``line`` with a nasty key, dead at its first stage, ``loop`` with an ordinary one."""
    other = Driver(ledger, loop())
    other.now = utcnow() - timedelta(minutes=30)
    other.intake("plain")
    driver = Driver(ledger, line(first=1))
    driver.now = other.now
    (run,) = driver.intake(NASTY, "second-in-line")
    ledger.confirm([run.id], driver.now)
    driver.guard(run)
    driver.end(run, result=RunResult.FAILED, error="auth")
    return driver


@dataclass(frozen=True)
class User:
    name: str

    def get_name(self) -> str:
        return self.name


class AuthManager:
    """``admin`` may do all, ``viewer`` reads all, ``outsider`` reads ``loop`` alone, ``nobody`` nothing."""

    def is_authorized_dag(
        self, *, method: str, user: User, details: Any = None, access_entity: Any = None
    ) -> bool:
        if user.name == "admin":
            return True
        if method != "GET" or user.name == "nobody":
            return False
        dag_id = getattr(details, "id", None)
        return user.name == "viewer" or dag_id is None or dag_id.startswith("loop__")

    def filter_authorized_dag_ids(
        self, *, dag_ids: set[str], user: User, method: str = "GET", team_name: str | None = None
    ) -> set[str]:
        class Details:
            def __init__(self, dag_id: str) -> None:
                self.id = dag_id

        return {d for d in dag_ids if self.is_authorized_dag(method=method, user=user, details=Details(d))}


async def _user_of(request: Request) -> User:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not token:
        raise HTTPException(401, "Not authenticated")
    if token not in ("admin", "viewer", "outsider", "nobody"):
        raise HTTPException(403, "Invalid JWT token")
    return User(token)


@pytest.fixture
def client(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The application with Airflow's log-in dependency replaced, as its tests do; nobody is logged in."""
    monkeypatch.setattr(web, "get_ledger", lambda: ledger)
    monkeypatch.setattr(views, "read_conditions", lambda *_args: Conditions())
    monkeypatch.setattr(access, "get_auth_manager", AuthManager)
    monkeypatch.setattr(access.DagModel, "get_dag_id_to_team_name_mapping", lambda _ids: {})
    monkeypatch.setattr(access.DagModel, "get_team_name", lambda _dag_id: None)
    web.app.dependency_overrides[security.get_user] = _user_of
    with TestClient(web.app, follow_redirects=False) as client:
        yield client
    web.app.dependency_overrides.clear()

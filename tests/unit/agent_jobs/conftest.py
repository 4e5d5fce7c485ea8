"""A ledger, an agent server, and Airflow played by a stub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_relay import compat
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.item_context import forget_item
from airflow_relay.ledger.engine import dispose_engines
from airflow_relay.ledger.store import Ledger
from support.agent_server import AgentServerProcess
from support.agent_tasks import AgentTask
from support.pipelines import MemoryObjects


@pytest.fixture(scope="module")
def shared_server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess() as server:
        yield server


@pytest.fixture
def server(
    shared_server: AgentServerProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentServerProcess]:
    """The module's server, behind the connection ``relay_agent``; its faults go with the test."""
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", shared_server.url)
    yield shared_server
    shared_server.clear_faults()


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """An empty SQLite ledger that every process of the deployment would use."""
    made = Ledger(f"sqlite:///{tmp_path}/ledger.db", MemoryObjects())
    made.init()
    monkeypatch.setattr(ledger_hook, "_ledger_for", lambda pid: made)
    forget_item()
    yield made
    forget_item()
    dispose_engines()


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Task → state in Airflow, as kill hooks see it."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(compat, "task_states", lambda dag_id, run_ids: {run_ids[0]: dict(known)})
    return known


@pytest.fixture
def task(ledger: Ledger, states: dict[str, Any]) -> Callable[..., AgentTask]:
    """Makes the agent task of a fresh item."""
    return lambda **settings: AgentTask(ledger, states, **settings)


@pytest.fixture
def plain_task(ledger: Ledger, states: dict[str, Any]) -> Callable[..., AgentTask]:
    """Makes an agent task outside of Relay's stages."""
    return lambda **settings: AgentTask(None, states, **settings)

"""A ledger and a fake Airflow for barriers."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from airflow_relay.ledger.store import Ledger
from support.pipelines import MemoryObjects
from support.track_tasks import FakeAirflow


@pytest.fixture
def ledger(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    upgrade(url)
    yield Ledger(url, MemoryObjects())
    engine_for(url).dispose()


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> FakeAirflow:
    return FakeAirflow(monkeypatch, ledger)

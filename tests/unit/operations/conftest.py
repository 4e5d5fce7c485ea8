"""A ledger in a file, and an Airflow that is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_relay.ledger.store import Ledger
from support.pipelines import Driver, MemoryObjects, line


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(f"sqlite:///{tmp_path}/ledger.db", MemoryObjects())
    made.init()
    return made


@pytest.fixture
def drive(ledger: Ledger) -> Driver:
    return Driver(ledger, line())

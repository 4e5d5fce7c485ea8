"""Ledgers of their own for tests that kill processes, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade


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

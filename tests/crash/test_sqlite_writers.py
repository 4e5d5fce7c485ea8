"""SQLite as the ledger of a busy machine: 32 processes write beside readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from airflow_relay.ledger import schema
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from support.writing import READERS, WRITERS

TESTS = Path(__file__).resolve().parent.parent


def write_for(seconds: int, folder: Path) -> dict[str, Any]:
    """Let them write; checks that nobody was refused and nothing was lost."""
    url = f"sqlite:///{folder}/ledger.db"
    upgrade(url)
    done = subprocess.run(
        [sys.executable, "-m", "support.writing", url, str(folder), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["errors"] == []
    assert (len(report["writers"]), len(report["readers"])) == (WRITERS, READERS)
    written = sum(w["written"] for w in report["writers"])
    with engine_for(url).connect() as conn:
        kept = conn.execute(select(func.count()).select_from(schema.items)).scalar_one()
        told = conn.execute(select(func.count()).select_from(schema.events)).scalar_one()
    engine_for(url).dispose()
    assert (kept, told) == (written, 2 * written)
    return report


def test_32_writers_are_never_refused_and_lose_nothing(tmp_path: Path) -> None:
    write_for(5, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_32_writers_for_a_minute_wait_less_than_five_seconds_each(
    tmp_path: Path, record_property: Any
) -> None:
    report = write_for(60, tmp_path)
    longest = max(w["longest"] for w in report["writers"])
    record_property("writes", 2 * sum(w["written"] for w in report["writers"]))
    record_property("longest_wait_s", longest)
    assert longest < 5

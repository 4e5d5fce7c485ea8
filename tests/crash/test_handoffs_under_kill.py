"""Hand-offs on the ledger from eight processes that are killed at random: each exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_relay.core.item import replay
from airflow_relay.core.naming import slug
from airflow_relay.core.states import EventKind, ItemState, RunResult, RunState
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.store import Ledger
from support.handing_off import LIMITS, PIPELINE
from support.pipelines import MemoryObjects

TESTS = Path(__file__).resolve().parent.parent
STAGES = [s.name for s in PIPELINE.stages]


def play(url: str, folder: Path, count: int, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "support.handing_off", url, str(folder), str(count), str(seed)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(report))  # noqa: T201 - the figures, with pytest -s
    return report


def check_each_item(ledger: Ledger, count: int) -> int:
    """Every item went through each stage once; returns the number of hand-offs."""
    with ledger.read() as tx:
        found = items.listing(tx, limit=count + 1)
        assert len(found) == count
        for item in found:
            assert item.state is ItemState.DONE
            log = items.log_of(tx, item.id)
            assert replay(item.id, log) == item, "row and log disagree"
            own = runs.of_item(tx, item.id)
            assert [r.stage for r in own] == STAGES
            assert [r.epoch for r in own] == [1, 2, 3]
            assert {r.state for r in own} == {RunState.CLOSED}
            assert {r.result for r in own} == {RunResult.SUCCESS}
            told = Counter((e.kind, e.run) for e in log)
            for run in own:
                assert told[(EventKind.GRANTED, run.id)] == 1
                assert told[(EventKind.STARTED, run.id)] == 1
                assert told[(EventKind.COMPLETED, run.id)] == 1
        return sum(len(runs.of_item(tx, i.id)) for i in found)


def check(url: str, folder: Path, report: dict[str, Any], count: int) -> None:
    ledger = Ledger(url, MemoryObjects())
    assert report["errors"] == []
    assert report["killed"] > 0
    assert check_each_item(ledger, count) == count * len(STAGES)
    with ledger.read() as tx:
        assert runs.usage(tx) == {}, "a slot leaked"
        wanted = {slug(f"{r.dag_id} {r.run_id}") for i in items.listing(tx) for r in runs.of_item(tx, i.id)}
    assert {f.name for f in (folder / "airflow").iterdir()} == wanted, "a grant is one run, and no other"
    for stage, limit in LIMITS.items():
        assert 0 < report["most_used"][f"line.{stage}"] <= limit


@pytest.mark.timeout(600)
def test_a_hundred_hand_offs_under_random_kills_happen_once_each(
    crash_ledger_url: str, tmp_path: Path
) -> None:
    report = play(crash_ledger_url, tmp_path, 34, seed=1)
    check(crash_ledger_url, tmp_path, report, 34)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_hand_offs_under_random_kills_happen_once_each(
    crash_ledger_url: str, tmp_path: Path
) -> None:
    report = play(crash_ledger_url, tmp_path, 334, seed=2)
    check(crash_ledger_url, tmp_path, report, 334)

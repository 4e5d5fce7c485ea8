"""What a hand-off tells Airflow's metrics."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_relay import metrics
from airflow_relay.core.item import Run
from airflow_relay.core.states import PriorityClass, RunResult, RunState

NOW = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, dict[str, str]]]:
    seen: list[tuple[str, Any, dict[str, str]]] = []
    monkeypatch.setattr(metrics.stats, "timing", lambda name, dt, *, tags: seen.append((name, dt, tags)))
    monkeypatch.setattr(metrics.stats, "incr", lambda name, *, tags: seen.append((name, 1, tags)))
    return seen


def a_run(**fields: Any) -> Run:
    known = {
        "id": 1,
        "item_id": 1,
        "pipeline": "line",
        "stage": "first",
        "visit": 1,
        "epoch": 1,
        "dag_id": "line__first",
        "run_id": "r",
        "ledger_id": "l",
        "state": RunState.OPEN,
        "klass": PriorityClass.P2,
        "granted_at": NOW,
    }
    return Run(**{**known, **fields})


def test_a_hand_off_tells_latency_wait_and_duration_by_pipeline_and_stage(
    told: list[tuple[str, Any, dict[str, str]]],
) -> None:
    run = a_run(ready_since=NOW - timedelta(seconds=7), started_at=NOW + timedelta(seconds=2))
    metrics.run_ended(run, result=RunResult.SUCCESS, now=NOW + timedelta(seconds=32))
    tags = {"pipeline": "line", "stage": "first"}
    assert ("relay.slot_wait", timedelta(seconds=7), tags) in told
    assert ("relay.trigger_latency", timedelta(seconds=2), tags) in told
    assert ("relay.stage_duration", timedelta(seconds=30), tags) in told
    assert ("relay.stage_ended", 1, {**tags, "result": "success"}) in told


def test_a_run_that_never_started_has_no_latency(told: list[tuple[str, Any, dict[str, str]]]) -> None:
    metrics.run_ended(a_run(), result=RunResult.LOST, now=NOW)
    assert [name for name, _, _ in told] == ["relay.stage_ended"]

"""What Relay tells Airflow's metrics, from tasks only: elsewhere Airflow drops them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from airflow.sdk.observability import stats

from airflow_relay.core.item import Run
from airflow_relay.core.states import RunResult

TRIGGER_LATENCY: Final = "relay.trigger_latency"  # from the grant to the start of the first task
SLOT_WAIT: Final = "relay.slot_wait"  # from ready to granted
STAGE_DURATION: Final = "relay.stage_duration"  # from the start of the first task to the hand-off
STAGE_ENDED: Final = "relay.stage_ended"
OPEN_RUNS: Final = "relay.open_runs"
BREAKERS_OPEN: Final = "relay.breaker.open"


def run_ended(run: Run, *, result: RunResult, now: datetime) -> None:
    """Times of a run that has just been handed off, tagged by pipeline and stage."""
    tags = {"pipeline": run.pipeline, "stage": run.stage}
    stats.incr(STAGE_ENDED, tags={**tags, "result": result.value})
    if run.ready_since is not None:
        stats.timing(SLOT_WAIT, run.granted_at - run.ready_since, tags=tags)
    if run.started_at is not None:
        stats.timing(TRIGGER_LATENCY, run.started_at - run.granted_at, tags=tags)
        stats.timing(STAGE_DURATION, now - run.started_at, tags=tags)


def tick(*, open_runs: int, breakers_open: int) -> None:
    """Levels, once a tick."""
    stats.gauge(OPEN_RUNS, open_runs)
    stats.gauge(BREAKERS_OPEN, breakers_open)

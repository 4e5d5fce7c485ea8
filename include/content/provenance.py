"""How a page was made: its item's runs as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .pages import StageRecord

if TYPE_CHECKING:
    from airflow_relay.core.item import Run


def stage_records(runs: Iterable[Run]) -> list[StageRecord]:
    """The runs that did some work, in time order."""
    return [
        StageRecord(
            stage=run.stage,
            started_at=run.started_at,
            finished_at=run.closed_at,
            trigger_latency=(run.started_at - run.granted_at).total_seconds(),
            note="" if run.outcome is None else run.outcome,
        )
        for run in runs
        if run.started_at is not None
    ]

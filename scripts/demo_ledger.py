"""Where the demo's items stand, read from the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import select

from airflow_relay.core.states import TERMINAL, ItemState
from airflow_relay.ledger.engine import connected
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.ledger.schema import items, runs


@dataclass(frozen=True)
class ItemProgress:
    """One item, with what its runs have shown so far."""

    key: str
    stage: str
    """The stage that runs or is to run; at the end, the last one."""
    status: str
    """The pipeline's word for what is done."""
    state: ItemState
    seconds: float | None
    """Registration to end, or None while it goes on."""
    error: str | None
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """Stage → for each visit, the seconds from the grant to the first task's start."""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


def read_progress(ledger_file: Path, pipeline: str) -> list[ItemProgress]:
    """All items of ``pipeline`` by key; an empty list while there is no ledger yet."""
    if not ledger_file.exists():
        return []
    try:
        with connected(f"sqlite:///{ledger_file}", write=False) as conn:
            found = conn.execute(
                select(items).where(items.c.pipeline == pipeline).order_by(items.c.key)
            ).all()
            granted = conn.execute(
                select(runs.c.item_id, runs.c.stage, runs.c.granted_at, runs.c.started_at)
                .where(runs.c.pipeline == pipeline)
                .order_by(runs.c.epoch)
            ).all()
    except LedgerNotReadyError:  # another process is creating the tables at this moment
        return []
    latencies: dict[int, dict[str, list[float]]] = {}
    for run in granted:
        if run.started_at is not None:
            stages = latencies.setdefault(run.item_id, {})
            stages.setdefault(run.stage, []).append(_seconds(run.granted_at, run.started_at))
    return [
        ItemProgress(
            key=row.key,
            stage=row.stage,
            status=row.status,
            state=row.state,
            seconds=_seconds(row.registered_at, row.finished_at) if row.finished_at else None,
            error=row.error_reason,
            latencies=latencies.get(row.id, {}),
        )
        for row in found
    ]


def _seconds(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()

"""What happened, for those who learn from it: closed runs, registrations and intakes of the last days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from airflow_relay.core.states import RunResult, RunState
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import intakes, items, jobs, runs


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A closed run that had started.

    :param tokens: of its agent jobs, failed ones included.
    """

    pipeline: str
    stage: str
    ready_since: datetime | None
    granted_at: datetime
    started_at: datetime
    closed_at: datetime
    result: RunResult | None
    outcome: str | None
    error_class: str | None
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Registrations:
    """How many items of a pipeline came in a time.

    :param intakes: intakes that ran, skipped ones included.
    """

    pipeline: str
    items: int
    intakes: int


def ended_runs(tx: Tx, *, since: datetime) -> Iterator[EndedRun]:
    """Runs closed since then that had started, oldest first."""
    tokens = (
        select(
            jobs.c.run,
            func.sum(func.coalesce(jobs.c.input_tokens, 0) + func.coalesce(jobs.c.output_tokens, 0)).label(
                "tokens"
            ),
        )
        .group_by(jobs.c.run)
        .subquery()
    )
    query = (
        select(runs, func.coalesce(tokens.c.tokens, 0).label("tokens"))
        .outerjoin(tokens, tokens.c.run == runs.c.id)
        .where(runs.c.state == RunState.CLOSED, runs.c.closed_at >= since, runs.c.started_at.is_not(None))
        .order_by(runs.c.closed_at)
    )
    for row in tx.conn.execute(query):
        yield EndedRun(
            pipeline=row.pipeline,
            stage=row.stage,
            ready_since=row.ready_since,
            granted_at=row.granted_at,
            started_at=row.started_at,
            closed_at=row.closed_at,
            result=row.result,
            outcome=row.outcome,
            error_class=row.error_class,
            tokens=int(row.tokens),
        )


def registrations(tx: Tx, *, since: datetime) -> list[Registrations]:
    """By pipeline, how much came in since then."""
    came = select(items.c.pipeline, func.count()).where(items.c.registered_at >= since)
    ran = select(intakes.c.pipeline, func.count()).where(intakes.c.at >= since)
    known = {name: count for name, count in tx.conn.execute(ran.group_by(intakes.c.pipeline))}  # noqa: C416
    return [
        Registrations(pipeline=name, items=count, intakes=known.get(name, 0))
        for name, count in tx.conn.execute(came.group_by(items.c.pipeline).order_by(items.c.pipeline))
    ]


def first_registration(tx: Tx) -> datetime | None:
    """When the ledger's oldest item came; ``None`` while it has none."""
    return tx.conn.execute(select(func.min(items.c.registered_at))).scalar()

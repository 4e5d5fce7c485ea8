"""What agent jobs have cost, and which of them nobody waits for any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlalchemy import select, update

from airflow_relay.core.states import FINISHED, RunState
from airflow_relay.ledger import items, jobs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.jobs import Job, JobPhase
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import jobs as job_table
from airflow_relay.ledger.schema import runs as run_table

MAX_ORPHANS: Final = 100
"""Handled in one tick, oldest first."""


@dataclass(frozen=True, kw_only=True)
class UsageSum:
    """Bills of several jobs together; failed and cancelled ones are billed too."""

    jobs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    """Of those jobs whose server gives one; mostly USD."""

    def plus(self, job: Job) -> UsageSum:
        """The sum with one more job."""
        return UsageSum(
            jobs=self.jobs + 1,
            input_tokens=self.input_tokens + (job.input_tokens or 0),
            output_tokens=self.output_tokens + (job.output_tokens or 0),
            cost=self.cost + _cost(job),
        )


def _cost(job: Job) -> Decimal:
    try:
        return Decimal(job.cost) if job.cost else Decimal(0)
    except InvalidOperation:
        return Decimal(0)


def total(known: Iterable[Job]) -> UsageSum:
    """The sum over these jobs."""
    result = UsageSum()
    for job in known:
        result = result.plus(job)
    return result


def by_stage(known: Iterable[Job]) -> dict[str, UsageSum]:
    """Stage → sum, in the order in which the stages first appear."""
    sums: dict[str, UsageSum] = {}
    for job in known:
        sums[job.stage] = sums.get(job.stage, UsageSum()).plus(job)
    return sums


def usage_of_item(tx: Tx, item_id: int) -> UsageSum:
    """What an item has cost so far."""
    return total(jobs.of_item(tx, item_id))


def mark_orphans(tx: Tx, *, now: datetime, limit: int = MAX_ORPHANS) -> list[Job]:
    """Jobs that run on the server and that nobody will ask for, each marked so that nobody attaches to it.

    Those are: jobs whose cancel was asked for and not confirmed; jobs of a run that is over, unless the item
    is still at this very stage visit; jobs of items that are done or discarded. The second kind is also what
    remains when a person ends a deferred task before any triggerer has taken its trigger up.
    """
    query = (
        select(job_table.c.id)
        .join(run_table, run_table.c.id == job_table.c.run)
        .join(item_table, item_table.c.id == job_table.c.item_id)
        .where(
            job_table.c.phase == JobPhase.SUBMITTED.value,
            job_table.c.cancel_requested_at.is_not(None)
            | (run_table.c.state != RunState.OPEN)
            | item_table.c.state.in_(list(FINISHED)),
        )
        .order_by(job_table.c.id)
    )
    found: list[Job] = []
    for job_id in tx.conn.execute(query).scalars().all():
        job = jobs.by_id(tx, job_id)
        if (job.cancel_requested_at is not None or not _is_wanted(tx, job)) and _mark(tx, job, now):
            found.append(job)
        if len(found) == limit:
            break
    return found


def _is_wanted(tx: Tx, job: Job) -> bool:
    """Whether the item is at this stage visit, so that its present or next run attaches to the job."""
    item = items.by_id(tx, job.item_id)
    return item.state not in FINISHED and item.stage == job.stage and item.visit == job.visit


def _mark(tx: Tx, job: Job, now: datetime) -> bool:
    """Claim the cancel; false when an attempt has just taken the job over, or it has ended."""
    claimed = tx.conn.execute(
        update(job_table)
        .where(
            job_table.c.id == job.id,
            job_table.c.attempt == job.attempt,
            job_table.c.phase == JobPhase.SUBMITTED.value,
        )
        .values(cancel_requested_at=job.cancel_requested_at or now)
    )
    return claimed.rowcount == 1

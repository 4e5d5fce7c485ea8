"""Agent jobs: intent before the submit, reference after it, the kept result. What makes each be paid once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, insert, select, update

from airflow_relay.core.item import Change, Item
from airflow_relay.core.states import EventKind
from airflow_relay.ledger import items
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.results import Stored
from airflow_relay.ledger.schema import jobs


class JobPhase(str, Enum):
    """Where the ledger knows a job to be. The last seven are what a protocol's snapshot may end with."""

    INTENDED = "intended"  # written before the submit: the server may or may not know the job
    SUBMITTED = "submitted"  # acknowledged; how far it is, only the server knows
    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    BLOCKED = "blocked"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


OPEN: Final = frozenset({JobPhase.INTENDED, JobPhase.SUBMITTED})
"""The server may be working, and billing."""


class JobStep(str, Enum):
    """What an attempt has to do about its job."""

    SUBMIT = "submit"  # a new job
    RECOVER = "recover"  # an intent without a reference: look it up, or send it again under the same key
    ATTACH = "attach"  # a job that runs: poll it
    KEPT = "kept"  # a result that is paid for: use it


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """Whose job it is. Run, try and grant are not in it, so each later attempt finds it again."""

    item_id: int
    stage: str
    visit: int
    task_id: str
    map_index: int = -1

    def where(self) -> ColumnElement[bool]:
        """The condition on ``jobs`` for this place."""
        return (
            (jobs.c.item_id == self.item_id)
            & (jobs.c.stage == self.stage)
            & (jobs.c.visit == self.visit)
            & (jobs.c.task_id == self.task_id)
            & (jobs.c.map_index == self.map_index)
        )

    def key(self, ledger_id: str, generation: int) -> str:
        """The idempotency key of a generation: the same for each send of the same job."""
        parts = (ledger_id, self.item_id, self.stage, self.visit, self.task_id, self.map_index, generation)
        return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row: one submit, at most one bill."""

    id: int
    item_id: int
    stage: str
    visit: int
    task_id: str
    map_index: int
    generation: int
    """Grows with each deliberate new job: changed input, a dropped result, a failed or lost predecessor."""
    fingerprint: str
    """SHA-256 of what the job was asked."""
    key: str
    """Sent as Idempotency-Key or contextId."""
    run: int
    attempt: str
    """Airflow's task instance id of the attempt that owns the job; only its kill may cancel it."""
    protocol: str
    conn_id: str
    phase: JobPhase
    ref: Mapping[str, Any] | None = None
    """How to find it on the server; no secret in it."""
    error_class: str | None = None
    error_reason: str | None = None
    result: Any = None
    result_ref: str | None = None
    """Where a result above 64 KB lies."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: str | None = None
    """In the server's currency, as text, so that no digit is lost."""
    intended_at: datetime
    submitted_at: datetime | None = None
    finished_at: datetime | None = None
    dropped_at: datetime | None = None
    """When a person asked for a fresh job in place of this one."""
    cancel_requested_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server may still be at work on it."""
        return self.phase in OPEN


_FIELDS: Final = tuple(f.name for f in fields(Job))


def _job(row: Row[Any]) -> Job:
    values = {name: getattr(row, name) for name in _FIELDS}
    return Job(**{**values, "phase": JobPhase(row.phase)})


@dataclass(frozen=True)
class Begun:
    """What an attempt is to do, and an earlier job that it makes pointless."""

    job: Job
    step: JobStep
    replaced: Job | None = None
    """Still running although its input has changed: to be cancelled, and marked so already."""


def begin(
    tx: Tx,
    place: JobPlace,
    *,
    fingerprint: str,
    run: int,
    attempt: str,
    protocol: str,
    conn_id: str,
    now: datetime,
) -> Begun:
    """Decide what this attempt does, and write the intent of a new job before anything is sent.

    The same input gets its kept result or its running job. A new generation begins only where the last job
    ended otherwise, was dropped or is being cancelled, or was asked something else.
    """
    item = items.locked(tx, place.item_id)
    known = of_place(tx, place)
    chosen, step, replaced = choose(known, fingerprint)
    if chosen is not None and step is not JobStep.KEPT:
        taken = _take_over(tx, chosen.id, run=run, attempt=attempt)
        if taken is None:  # a cancel was claimed since it was read
            known = of_place(tx, place)
            chosen, step, replaced = choose(known, fingerprint)
        else:
            chosen = taken
    if chosen is not None:
        return Begun(chosen, step)
    if replaced is not None:
        replaced = _set(tx, replaced.id, cancel_requested_at=replaced.cancel_requested_at or now)
    latest = known[-1] if known else None
    generation = latest.generation + 1 if latest is not None else 1
    row = {
        "item_id": place.item_id,
        "stage": place.stage,
        "visit": place.visit,
        "task_id": place.task_id,
        "map_index": place.map_index,
        "generation": generation,
        "fingerprint": fingerprint,
        "key": place.key(tx.ledger_id, generation),
        "run": run,
        "attempt": attempt,
        "protocol": protocol,
        "conn_id": conn_id,
        "phase": JobPhase.INTENDED.value,
        "intended_at": now,
    }
    job = _job(tx.conn.execute(insert(jobs).values(**row).returning(jobs)).one())
    _log(tx, item, job, f"Agent job {job.key} of {place.task_id} is about to be submitted", now)
    return Begun(job, JobStep.SUBMIT, replaced)


def _take_over(tx: Tx, job_id: int, *, run: int, attempt: str) -> Job | None:
    """Make an open job this attempt's; ``None`` when it is being cancelled.

    One conditional UPDATE, like the claim of a cancel: of the two, exactly one sees the row as it wants it.
    """
    taken = tx.conn.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id,
            jobs.c.cancel_requested_at.is_(None),
            jobs.c.phase.in_([phase.value for phase in OPEN]),
        )
        .values(run=run, attempt=attempt)
        .returning(jobs)
    ).one_or_none()
    return None if taken is None else _job(taken)


def choose(known: Sequence[Job], fingerprint: str) -> tuple[Job | None, JobStep, Job | None]:
    """The job that this input already has and what to do about it; else the running job that it replaces.

    :param known: the task's jobs, oldest generation first.
    """
    kept = next((j for j in reversed(known) if _is_kept(j) and j.fingerprint == fingerprint), None)
    if kept is not None:
        return kept, JobStep.KEPT, None
    latest = known[-1] if known else None
    if latest is None:
        return None, JobStep.SUBMIT, None
    if latest.fingerprint == fingerprint and _may_attach(latest):
        return latest, JobStep.ATTACH if latest.phase is JobPhase.SUBMITTED else JobStep.RECOVER, None
    return None, JobStep.SUBMIT, latest if latest.phase is JobPhase.SUBMITTED else None


def _is_kept(job: Job) -> bool:
    return job.phase is JobPhase.SUCCEEDED and job.dropped_at is None


def _may_attach(job: Job) -> bool:
    return job.is_open and job.dropped_at is None and job.cancel_requested_at is None


def submitted(tx: Tx, job_id: int, *, ref: Mapping[str, Any], now: datetime) -> Job:
    """Record that the server has acknowledged the job.

    Returns the row as it is then. Its ``ref`` differs from the one given when another attempt was faster: the
    caller's own job is then the surplus one.
    """
    job = by_id(tx, job_id)
    item = items.locked(tx, job.item_id)
    job = by_id(tx, job_id)
    if job.phase is not JobPhase.INTENDED:
        return job
    job = _set(tx, job_id, phase=JobPhase.SUBMITTED.value, ref=dict(ref), submitted_at=now)
    _log(tx, item, job, f"Agent job {ref.get('id')} of {job.task_id} submitted", now)
    return job


def moved(tx: Tx, job_id: int, *, ref: Mapping[str, Any]) -> None:
    """Record that the server has said where the job is to be asked for from now on."""
    tx.conn.execute(update(jobs).where(jobs.c.id == job_id).values(ref=dict(ref)))


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a job ended.

    :param stored: of a succeeded one, the result, prepared before the transaction.
    """

    phase: JobPhase
    text: str
    error_class: str | None = None
    error_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: str | None = None
    stored: Stored | None = None


def ended(tx: Tx, job_id: int, end: JobEnd, *, now: datetime) -> Job:
    """Record the end. The first end stands: a job that was cancelled does not succeed minutes later."""
    job = by_id(tx, job_id)
    item = items.locked(tx, job.item_id)
    job = by_id(tx, job_id)
    if not job.is_open:
        return job
    job = _set(
        tx,
        job_id,
        phase=end.phase.value,
        error_class=end.error_class,
        error_reason=end.error_reason,
        result=end.stored.value if end.stored else None,
        result_ref=end.stored.ref if end.stored else None,
        input_tokens=end.input_tokens,
        output_tokens=end.output_tokens,
        cost=end.cost,
        finished_at=now,
    )
    _log(tx, item, job, end.text, now)
    return job


def request_cancel(tx: Tx, job_id: int, *, attempt: str, now: datetime) -> bool:
    """Claim the right to cancel an open job; false when another attempt owns it by now, or it has ended.

    From here on no attempt attaches to it, so a cancel cannot hit somebody else's job.
    """
    claimed = tx.conn.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id, jobs.c.attempt == attempt, jobs.c.phase.in_([phase.value for phase in OPEN])
        )
        .values(cancel_requested_at=now)
    )
    return claimed.rowcount == 1


def find_key(tx: Tx, key: str) -> Job | None:
    """The job of an idempotency key."""
    row = tx.conn.execute(select(jobs).where(jobs.c.key == key)).one_or_none()
    return None if row is None else _job(row)


def by_id(tx: Tx, job_id: int) -> Job:
    """The job of a row id."""
    return _job(tx.conn.execute(select(jobs).where(jobs.c.id == job_id)).one())


def of_place(tx: Tx, place: JobPlace) -> list[Job]:
    """A task's jobs, oldest generation first."""
    query = select(jobs).where(place.where()).order_by(jobs.c.generation)
    return [_job(r) for r in tx.conn.execute(query)]


def of_item(tx: Tx, item_id: int) -> list[Job]:
    """All jobs of an item, oldest first."""
    query = select(jobs).where(jobs.c.item_id == item_id).order_by(jobs.c.id)
    return [_job(r) for r in tx.conn.execute(query)]


def current(tx: Tx, place: JobPlace) -> Job | None:
    """The newest generation of a task's job."""
    known = of_place(tx, place)
    return known[-1] if known else None


def kept_result(tx: Tx, place: JobPlace, fingerprint: str) -> Job | None:
    """The finished job whose result the same input gets without a second bill."""
    known = of_place(tx, place)
    return next((j for j in reversed(known) if _is_kept(j) and j.fingerprint == fingerprint), None)


def kept_of_item(tx: Tx, item_id: int) -> list[Job]:
    """The kept results of an item, for ``airflow relay show``."""
    return [job for job in of_item(tx, item_id) if _is_kept(job)]


def drop_kept(
    tx: Tx,
    item_id: int,
    *,
    now: datetime,
    stage: str | None = None,
    task_id: str | None = None,
    key: str | None = None,
) -> int:
    """Ask for fresh jobs in place of kept results and of unconfirmed submits; returns how many.

    :param key: only the job with this idempotency key.
    """
    item = items.locked(tx, item_id)
    droppable = (JobPhase.SUCCEEDED, JobPhase.INTENDED)
    chosen = [
        job
        for job in of_item(tx, item_id)
        if job.phase in droppable
        and job.dropped_at is None
        and stage in (None, job.stage)
        and task_id in (None, job.task_id)
        and key in (None, job.key)
    ]
    for job in chosen:
        _set(tx, job.id, dropped_at=now)
        _log(tx, item, job, f"The kept result of {job.stage}.{job.task_id} was dropped", now)
    return len(chosen)


def _set(tx: Tx, job_id: int, **values: Any) -> Job:
    return _job(
        tx.conn.execute(update(jobs).where(jobs.c.id == job_id).values(**values).returning(jobs)).one()
    )


def _log(tx: Tx, item: Item, job: Job, text: str, now: datetime) -> None:
    detail = {"key": job.key, "generation": job.generation, "phase": job.phase.value, "task": job.task_id}
    if job.ref is not None:
        detail["job"] = str(job.ref.get("id"))
    items.perform(tx, item, Change(kind=EventKind.JOB, at=now, text=text, detail=detail, run=job.run))

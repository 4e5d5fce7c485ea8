"""Where a job is recorded: the ledger inside Relay's stages, Airflow's task state store elsewhere."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from airflow_relay.clock import utcnow
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.hooks.objects import results_folder
from airflow_relay.item_context import NoItemError, current_item
from airflow_relay.ledger import jobs, results
from airflow_relay.ledger.jobs import OPEN, Begun, Job, JobEnd, JobPhase, JobPlace, JobStep
from airflow_relay.ledger.results import ObjectStore, Stored

STATE_KEY: Final = "relay_agent_job"


class JobRecords(Protocol):
    """What an attempt needs of its record. Every method is one short, durable step."""

    attempt: str
    labels: Mapping[str, str]
    """What a person finds the job by in the server's dashboard."""
    deadline: datetime | None
    """The stage's; ``None`` = none."""
    objects: ObjectStore

    def begin(self, *, fingerprint: str, protocol: str, conn_id: str) -> Begun:
        """Decide what to do; a new job's intent is durable afterwards."""

    def current(self) -> Job | None:
        """The newest job of this task."""

    def submitted(self, job: Job, ref: Mapping[str, Any]) -> Job:
        """Keep the reference; returns the job as recorded, perhaps with another attempt's."""

    def moved(self, job: Job, ref: Mapping[str, Any]) -> None:
        """Keep the reference's new form."""

    def ended(self, job: Job, end: JobEnd) -> None:
        """Keep the end."""

    def claim_cancel(self, job: Job) -> bool:
        """Whether this attempt may cancel the job; afterwards no other attaches to it."""

    def prepare(self, job: Job, value: Any) -> Stored:
        """Encode a result; a large one is uploaded."""


def records_for(context: Mapping[str, Any]) -> JobRecords:
    """The ledger when the run has an item, the task's state store otherwise."""
    try:
        view = current_item(context)
    except NoItemError:
        return TaskStateJobs(context)
    return LedgerJobs(context, view.item.id, view.pipeline, view.key)


class LedgerJobs:
    """Records in the ledger, found again by every later run of the same stage visit."""

    def __init__(self, context: Mapping[str, Any], item_id: int, pipeline: str, key: str) -> None:
        ti, dag_run = context["ti"], context["dag_run"]
        self.attempt = str(ti.id)
        self._ledger = get_ledger()
        self.objects: ObjectStore = self._ledger.objects
        # Read anew: the view was made before the guard started the run and set its deadline.
        run = self._ledger.find_run(dag_run.dag_id, dag_run.run_id)
        if run is None:
            raise NoItemError(f"Run {dag_run.run_id} has left the ledger.")
        self._run, self._pipeline, self._key = run, pipeline, key
        self.deadline = run.deadline
        self.labels: Mapping[str, str] = {
            "relay_pipeline": pipeline,
            "relay_stage": run.stage,
            "relay_item": key,
        }
        self.place = JobPlace(
            item_id=item_id,
            stage=run.stage,
            visit=run.visit,
            task_id=ti.task_id,
            map_index=_map_index(ti),
        )

    def begin(self, *, fingerprint: str, protocol: str, conn_id: str) -> Begun:
        with self._ledger.write() as tx:
            return jobs.begin(
                tx,
                self.place,
                fingerprint=fingerprint,
                run=self._run.id,
                attempt=self.attempt,
                protocol=protocol,
                conn_id=conn_id,
                now=utcnow(),
            )

    def current(self) -> Job | None:
        with self._ledger.read() as tx:
            return jobs.current(tx, self.place)

    def submitted(self, job: Job, ref: Mapping[str, Any]) -> Job:
        with self._ledger.write() as tx:
            return jobs.submitted(tx, job.id, ref=ref, now=utcnow())

    def moved(self, job: Job, ref: Mapping[str, Any]) -> None:
        with self._ledger.write() as tx:
            jobs.moved(tx, job.id, ref=ref)

    def ended(self, job: Job, end: JobEnd) -> None:
        with self._ledger.write() as tx:
            jobs.ended(tx, job.id, end, now=utcnow())

    def claim_cancel(self, job: Job) -> bool:
        with self._ledger.write() as tx:
            return jobs.request_cancel(tx, job.id, attempt=self.attempt, now=utcnow())

    def prepare(self, job: Job, value: Any) -> Stored:
        return self._ledger.prepare(value, self._pipeline, self._key, f"job.{job.key}")


class TaskStateJobs:
    """Records in Airflow's task state store, which survives retries, clears and deferral of this run."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        ti, dag_run = context["ti"], context["dag_run"]
        self.attempt = str(ti.id)
        self.objects: ObjectStore = results_folder()
        self.deadline: datetime | None = None
        self.labels: Mapping[str, str] = {"airflow_dag": dag_run.dag_id, "airflow_task": ti.task_id}
        self._store = context["task_state_store"]
        self._task_id, self._map_index = ti.task_id, _map_index(ti)
        self._identity = (dag_run.dag_id, dag_run.run_id, ti.task_id, str(self._map_index))

    def begin(self, *, fingerprint: str, protocol: str, conn_id: str) -> Begun:
        latest = self.current()
        chosen, step, replaced = jobs.choose([latest] if latest else [], fingerprint)
        if chosen is not None:
            return Begun(self._put(dataclasses.replace(chosen, attempt=self.attempt)), step)
        generation = latest.generation + 1 if latest is not None else 1
        job = Job(
            id=0,
            item_id=0,
            stage="",
            visit=0,
            task_id=self._task_id,
            map_index=self._map_index,
            generation=generation,
            fingerprint=fingerprint,
            key=_digest(*self._identity, str(generation))[:32],
            run=0,
            attempt=self.attempt,
            protocol=protocol,
            conn_id=conn_id,
            phase=JobPhase.INTENDED,
            intended_at=utcnow(),
        )
        return Begun(self._put(job), JobStep.SUBMIT, replaced)

    def current(self) -> Job | None:
        text = self._store.get(STATE_KEY)
        return None if not isinstance(text, str) else job_from_json(text)

    def submitted(self, job: Job, ref: Mapping[str, Any]) -> Job:
        return self._put(
            dataclasses.replace(job, phase=JobPhase.SUBMITTED, ref=dict(ref), submitted_at=utcnow())
        )

    def moved(self, job: Job, ref: Mapping[str, Any]) -> None:
        self._put(dataclasses.replace(job, ref=dict(ref)))

    def ended(self, job: Job, end: JobEnd) -> None:
        stored = self.current()
        if stored is None or stored.key != job.key or stored.phase not in OPEN:
            return
        self._put(
            dataclasses.replace(
                stored,
                phase=end.phase,
                error_class=end.error_class,
                error_reason=end.error_reason,
                result=end.stored.value if end.stored else None,
                result_ref=end.stored.ref if end.stored else None,
                input_tokens=end.input_tokens,
                output_tokens=end.output_tokens,
                cost=end.cost,
                finished_at=utcnow(),
            )
        )

    def claim_cancel(self, job: Job) -> bool:
        stored = self.current()
        if stored is None or stored.key != job.key or stored.attempt != self.attempt or not stored.is_open:
            return False
        self._put(dataclasses.replace(stored, cancel_requested_at=utcnow()))
        return True

    def prepare(self, job: Job, value: Any) -> Stored:
        return results.prepare(
            value, objects=self.objects, pipeline="airflow", key=self._identity[0], what=f"job.{job.key}"
        )

    def _put(self, job: Job) -> Job:
        self._store.set(STATE_KEY, job_to_json(job))
        return job


_TIMES: Final = frozenset(f.name for f in dataclasses.fields(Job) if f.name.endswith("_at"))


def job_to_json(job: Job) -> str:
    """A job as JSON text, times in ISO 8601."""
    values = dataclasses.asdict(job)
    for name in _TIMES:
        values[name] = values[name].isoformat() if values[name] is not None else None
    return json.dumps({**values, "phase": job.phase.value})


def job_from_json(text: str) -> Job:
    """The inverse of :func:`job_to_json`."""
    values = json.loads(text)
    for name in _TIMES:
        values[name] = datetime.fromisoformat(values[name]) if values[name] is not None else None
    return Job(**{**values, "phase": JobPhase(values["phase"])})


@dataclass(frozen=True)
class Asked:
    """What makes two jobs the same: equal fingerprints get one bill. Metadata is a label, and not in it."""

    protocol: str
    conn_id: str
    input: Any
    model: str | None
    instructions: str | None
    options: Mapping[str, Any]

    def fingerprint(self) -> str:
        """SHA-256 in hex."""
        return _digest(json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=True))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _map_index(ti: Any) -> int:
    index = getattr(ti, "map_index", -1)
    return -1 if index is None else int(index)

"""The life of jobs: accept, work off on a bounded pool, cancel, and pick up again after a restart.

Everything here runs on the event loop's thread except ``Backend.run``. After a restart with a state file,
queued and running jobs are worked at again from the start: their input is kept and the backends change
nothing outside, so a second run is harmless and the client's id stays good.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent import outcome
from airflow_relay.local_agent.backends import InvalidInputError, JobFailedError
from airflow_relay.local_agent.faults import FaultKind, bound
from airflow_relay.local_agent.jobs import Job, JobStatus
from airflow_relay.local_agent.statistics import Statistics
from airflow_relay.local_agent.wire import ApiError, parse_submit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_relay.local_agent.backends import Backend, BackendResult
    from airflow_relay.local_agent.faults import Fault
    from airflow_relay.local_agent.settings import ServerSettings
    from airflow_relay.local_agent.store import JobStore
    from airflow_relay.local_agent.wire import SubmitRequest

log = logging.getLogger("airflow_relay.local_agent")


class JobService:
    """:param backends: by name, as ``backends.load`` gives them."""

    def __init__(self, settings: ServerSettings, store: JobStore, backends: Mapping[str, Backend]) -> None:
        self.statistics = Statistics()
        self.store = store
        self.backends = backends
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="agent-worker")
        self._free_workers = asyncio.Semaphore(settings.workers)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Pick up what an earlier process left unfinished."""
        for job in self.store.unfinished():
            job.status = JobStatus.QUEUED
            self.store.save(job)
            self._launch(job, created=False)

    async def stop(self) -> None:
        """Leave unfinished jobs as they are: the next process finds them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def find_by_key(self, key: str, request: SubmitRequest) -> Job | None:
        """The job that this Idempotency-Key already has.

        :raises ApiError: 422, the key was used with another payload.
        """
        job = self.store.by_key(key)
        if job is not None and job.fingerprint != request.fingerprint:
            raise ApiError(
                422,
                "This Idempotency-Key was used with a different request body; use a new key for a new job.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
            )
        return job

    def create(
        self, request: SubmitRequest, backend: Backend, name: str, *, key: str | None, faults: list[Fault]
    ) -> Job:
        """Check the input, record the job and start it.

        :param faults: switches bound to the job, for tests.
        :raises ApiError: 400, the input does not fit the job.
        """
        try:
            backend.prepare(name, request.text)
        except InvalidInputError as error:
            raise ApiError(400, str(error), param="input", code="invalid_value") from error
        job = Job(
            id=f"resp_{uuid.uuid4().hex}",
            model=request.model,
            backend=backend.name,
            job=name,
            created_at=int(time.time()),
            echo=request.echo,
            idempotency_key=key,
            fingerprint=request.fingerprint,
            faults=[fault.to_record() for fault in faults],
        )
        self.store.forget_oldest()
        self.store.add(job, request.body)
        self._launch(job, created=True)
        return job

    async def wait(self, job_id: str) -> Job | None:
        """The job once it is terminal. A client that goes away does not stop it."""
        task = self._tasks.get(job_id)
        if task is not None:
            await asyncio.wait([task])
        return self.store.get(job_id)

    def cancel(self, job: Job) -> Job:
        """Cancelling a finished job returns it unchanged, so cancelling twice is safe.

        :raises ApiError: 400, the job was not created in background mode.
        """
        if not job.background:
            raise ApiError(
                400, "Cannot cancel a synchronous response.", param="response_id", code="invalid_value"
            )
        if not job.is_terminal:
            outcome.cancelled(job, now=int(time.time()))
            self.store.save(job)
            self._stop_task(job.id)
            _log_job(job)
        return job

    def delete(self, job_id: str) -> bool:
        """Stop the job if it runs, and forget it with its Idempotency-Key."""
        self._stop_task(job_id)
        return self.store.delete(job_id)

    def _launch(self, job: Job, *, created: bool) -> None:
        self.statistics.job_started(job.job, created=created)
        task = asyncio.create_task(self._work(job.id), name=job.id)
        self._tasks[job.id] = task
        _log_job(job)

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.pop(job.id, None)
            self.statistics.job_ended(job.job)

        task.add_done_callback(ended)

    def _stop_task(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()

    async def _work(self, job_id: str) -> None:
        job = self.store.get(job_id)
        if job is None:
            return
        if bound(job.faults, FaultKind.STUCK_QUEUED):
            await asyncio.Event().wait()  # until a cancel or the server's end
        await self._linger(job)
        async with self._free_workers:
            self._progress(job)
            started = time.monotonic()
            try:
                result = await asyncio.get_running_loop().run_in_executor(
                    self._pool, self._run, job.backend, job.job, self.store.request(job_id)
                )
            except InvalidInputError as error:
                outcome.fail(job, code="invalid_prompt", message=str(error), now=int(time.time()))
            except JobFailedError as error:
                outcome.fail(job, code=error.code, message=str(error), now=int(time.time()))
            except Exception as error:  # noqa: BLE001 - any error of a backend ends its job, not the server
                log.warning("job raised", extra={"fields": {"id": job_id, "error": repr(error)}})
                outcome.fail(
                    job,
                    code="server_error",
                    message=f"The job '{job.job}' failed inside the server: {type(error).__name__}.",
                    now=int(time.time()),
                )
            else:
                outcome.complete(job, result, now=int(time.time()))
        self._save_fresh(job)
        _log_job(job, seconds=round(time.monotonic() - started, 3))

    async def _linger(self, job: Job) -> None:
        """The configured latency: the job is in progress but needs no worker."""
        slow = bound(job.faults, FaultKind.SLOW)
        seconds = self._settings.latency.of(job.fingerprint) + (slow.effective_seconds if slow else 0.0)
        if seconds > 0:
            self._progress(job)
            await asyncio.sleep(seconds)

    def _progress(self, job: Job) -> None:
        if job.status is JobStatus.QUEUED:
            job.status = JobStatus.IN_PROGRESS
            self._save_fresh(job)

    def _save_fresh(self, job: Job) -> None:
        """Save, keeping what polls have changed meanwhile."""
        stored = self.store.get(job.id)
        if stored is not None:
            job.polls, job.faults = stored.polls, stored.faults
            self.store.save(job)

    def _run(self, backend_name: str, name: str, body: dict[str, Any]) -> BackendResult:
        """On a worker thread."""
        backend = self.backends[backend_name]
        request = parse_submit(body)
        return backend.run(name, backend.prepare(name, request.text), request.options)


def _log_job(job: Job, **more: float) -> None:
    """One line for a change of state; never the input, the output or a token."""
    fields: dict[str, Any] = {
        "id": job.id,
        "job": job.job,
        "model": job.model,
        "status": job.status.value,
        **more,
    }
    if job.usage:
        fields["total_tokens"] = job.usage["total_tokens"]
    if job.error:
        fields["error_code"] = job.error["code"]
    log.info("job", extra={"fields": fields})

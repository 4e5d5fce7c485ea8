"""The life of jobs, with a backend that waits for the test."""

from __future__ import annotations

import asyncio
import threading

import pytest

from airflow_relay.local_agent.backends import Backend, BackendResult, Usage
from airflow_relay.local_agent.jobs import JobStatus
from airflow_relay.local_agent.service import JobService
from airflow_relay.local_agent.settings import ServerSettings
from airflow_relay.local_agent.store import JobStore
from airflow_relay.local_agent.wire import ApiError, parse_submit


class PatientBackend(Backend):
    """Says when it begins, ends when it is told to."""

    name = "patient"
    default_job = "wait"
    jobs = ("wait",)

    def __init__(self):
        self.may_end = threading.Event()
        self.began = threading.Semaphore(0)
        self.running = 0
        self.most_running = 0
        self._lock = threading.Lock()

    def prepare(self, job, text):
        return text

    def run(self, job, payload, options):
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        self.began.release()
        assert self.may_end.wait(60)
        with self._lock:
            self.running -= 1
        if payload == "crash":
            raise KeyError("an inner secret")
        return BackendResult("{}", {}, Usage(1, 1))


@pytest.fixture
async def setting():
    backend = PatientBackend()
    store = JobStore()
    service = JobService(ServerSettings(workers=2), store, {"patient": backend})
    await service.start()
    yield service, store, backend
    backend.may_end.set()
    await service.stop()


def submit(service, backend, text="x", *, background=True):
    request = parse_submit({"model": "patient", "input": text, "background": background})
    return service.create(request, backend, "wait", key=None, faults=[]).id


async def begun(backend, count):
    for _ in range(count):
        assert await asyncio.to_thread(backend.began.acquire, timeout=60)


async def test_no_more_jobs_run_than_there_are_workers_and_the_rest_is_queued(setting):
    service, store, backend = setting
    ids = [submit(service, backend) for _ in range(5)]
    await begun(backend, 2)
    assert store.counts() == {"in_progress": 2, "queued": 3}
    backend.may_end.set()
    assert [(await service.wait(job_id)).status for job_id in ids] == [JobStatus.COMPLETED] * 5
    assert backend.most_running == 2
    assert service.statistics.max_active == 5
    assert service.statistics.active_now == 0


async def test_a_job_cancelled_while_it_runs_stays_cancelled_when_the_work_ends(setting):
    service, store, backend = setting
    job_id = submit(service, backend)
    await begun(backend, 1)
    service.cancel(store.get(job_id))
    backend.may_end.set()
    assert (await service.wait(job_id)).status is JobStatus.CANCELLED
    other = submit(service, backend)
    await service.wait(other)
    assert store.get(job_id).status is JobStatus.CANCELLED


async def test_a_backend_that_raises_ends_the_job_and_tells_no_inner_detail(setting):
    service, _, backend = setting
    backend.may_end.set()
    job = await service.wait(submit(service, backend, "crash"))
    assert job.status is JobStatus.FAILED
    assert job.error == {
        "code": "server_error",
        "message": "The job 'wait' failed inside the server: KeyError.",
    }


async def test_a_foreground_job_cannot_be_cancelled(setting):
    service, store, backend = setting
    job_id = submit(service, backend, background=False)
    with pytest.raises(ApiError, match="synchronous"):
        service.cancel(store.get(job_id))


async def test_a_deleted_job_does_not_come_back_when_its_work_ends(setting):
    service, store, backend = setting
    job_id = submit(service, backend)
    await begun(backend, 1)
    assert service.delete(job_id)
    backend.may_end.set()
    await service.wait(submit(service, backend))
    assert store.get(job_id) is None

from __future__ import annotations

import pytest

from airflow_relay.local_agent.jobs import Job, JobStatus
from airflow_relay.local_agent.store import JobStore, StateFileError


def job(number, status=JobStatus.QUEUED, key=None):
    return Job(
        id=f"resp_{number}",
        model="extractive",
        backend="extractive",
        job="write",
        created_at=number,
        echo={"metadata": {"odd": "\ud800 ünï"}, "background": True},
        status=status,
        idempotency_key=key,
    )


def test_jobs_survive_the_end_of_the_process(tmp_path):
    path = str(tmp_path / "a folder" / "jobs.db")
    (tmp_path / "a folder").mkdir()
    first = JobStore(path)
    first.add(job(1, key="k"), {"input": "x"})
    first.add(job(2, JobStatus.COMPLETED), {"input": "y"})
    first.close()
    second = JobStore(path)
    assert second.get("resp_1") == job(1, key="k")
    assert second.by_key("k") == job(1, key="k")
    assert second.request("resp_2") == {"input": "y"}
    assert [found.id for found in second.unfinished()] == ["resp_1"]
    assert second.counts() == {"queued": 1, "completed": 1}
    second.close()


def test_jobs_created_counts_deleted_ones_too():
    store = JobStore()
    store.add(job(1, key="k"), {})
    assert store.delete("resp_1")
    assert not store.delete("resp_1")
    assert store.by_key("k") is None
    store.add(job(2, key="k"), {})
    assert store.jobs_created() == 2
    store.close()


def test_only_the_newest_finished_jobs_are_kept():
    store = JobStore(keep=2)
    store.add(job(0), {})
    for number in range(1, 6):
        store.add(job(number, JobStatus.COMPLETED), {})
    store.forget_oldest()
    assert [found.id for found in store.all()] == ["resp_0", "resp_4", "resp_5"]
    store.close()


def test_a_file_that_another_server_holds_is_refused(tmp_path):
    path = str(tmp_path / "jobs.db")
    first = JobStore(path)
    first.add(job(1), {})
    with pytest.raises(StateFileError, match="stop the other server"):
        JobStore(path)
    first.close()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "jobs.db"
    path.write_text("just a text that is long enough to be read as a header of something else")
    with pytest.raises(StateFileError, match="cannot be used"):
        JobStore(str(path))

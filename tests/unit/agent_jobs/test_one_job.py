"""The ordinary life of a job, and what its callers get."""

from __future__ import annotations

from airflow_relay.ledger.jobs import JobPhase


def test_a_job_is_submitted_deferred_watched_and_its_result_returned(server, task):
    before = server.stats()["jobs_created"]
    ask = task()
    value = ask.run()
    assert value["data"]["title"]
    assert value["usage"]["total_tokens"] > 0
    assert value["job"]["id"].startswith("resp_")
    job = ask.job()
    assert job.phase is JobPhase.SUCCEEDED
    assert job.input_tokens == value["usage"]["input_tokens"]
    assert server.stats()["jobs_created"] == before + 1

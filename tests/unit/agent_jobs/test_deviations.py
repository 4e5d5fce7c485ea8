"""Each fault switch of the agent server, met by the real operator and trigger."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.agent_server import AgentServerProcess

from airflow_relay.core.errors import ErrorClass
from airflow_relay.ledger.jobs import JobPhase
from airflow_relay.local_agent.faults import FaultKind
from airflow_relay.operators import agent_job_errors as errors
from airflow_relay.operators.agent_job_results import full_result

COVERED = set()


def covers(*kinds):
    """Note which switches a test turns on; the last test of the module compares."""
    COVERED.update(kinds)
    return lambda test: test


def with_fault(task, fault, **settings):
    return task(metadata={"fault": fault}, **settings)


def created(server):
    return server.stats()["jobs_created"]


def fails(kind, ask):
    with pytest.raises(kind) as caught:
        ask.run()
    return caught.value


# --- at the submit ---------------------------------------------------------------------------------------


@covers(FaultKind.HTTP_STATUS)
def test_an_error_before_the_job_exists_is_retried_under_the_same_key(server, task):
    ask = with_fault(task, "http_status:point=submit,status=502,times=1")
    failure = fails(errors.AgentJobSubmitError, ask)
    assert failure.verdict.retryable
    assert ask.job().phase is JobPhase.INTENDED
    ask.new_try().run()
    assert [job.generation for job in ask.jobs()] == [1]
    assert ask.job().phase is JobPhase.SUCCEEDED


@covers(FaultKind.HTTP_STATUS, FaultKind.CAPACITY)
def test_a_full_server_says_when_to_come_back_and_the_next_try_has_a_new_key(server, task):
    server.set_fault("capacity", capacity=0, retry_after="7")
    ask = task()
    failure = fails(errors.AgentJobSubmitError, ask)
    assert failure.verdict.error_class is ErrorClass.RATE_LIMIT
    assert failure.verdict.retry_after == 7
    server.clear_faults()
    ask.new_try().run()
    assert [(job.generation, job.phase) for job in ask.jobs()] == [
        (1, JobPhase.FAILED),
        (2, JobPhase.SUCCEEDED),
    ]


@pytest.mark.parametrize("fault", ["html", "empty_body", "close"])
@covers(FaultKind.HTML, FaultKind.EMPTY_BODY, FaultKind.CLOSE)
def test_an_unreadable_answer_to_a_submit_does_not_pay_twice(server, task, fault):
    before = created(server)
    ask = with_fault(task, f"{fault}:point=submitted,times=1")
    assert fails(errors.AgentJobSubmitError, ask).verdict.retryable
    value = ask.new_try().run()
    assert value["data"]
    assert created(server) == before + 1


@covers(FaultKind.HANG)
def test_a_submit_that_hangs_past_the_clients_timeout_does_not_pay_twice(server, task, monkeypatch):
    set_connection(monkeypatch, server, timeout=1)
    before = created(server)
    ask = with_fault(task, "hang:point=submitted,seconds=30,times=1")
    failure = fails(errors.AgentJobSubmitError, ask)
    assert failure.verdict.error_class is ErrorClass.TIMEOUT
    ask.new_try().run()
    assert created(server) == before + 1


@covers(FaultKind.BACKGROUND_REJECTED)
def test_a_server_without_background_mode_fails_at_once(server, task):
    failure = fails(errors.AgentJobSubmitError, with_fault(task, "background_rejected"))
    assert failure.verdict.error_class is ErrorClass.INVALID_REQUEST
    assert not failure.verdict.retryable


@covers(FaultKind.BACKGROUND_IGNORED)
def test_a_server_that_answers_the_submit_with_the_result_is_not_waited_for(server, task):
    ask = with_fault(task, "background_ignored")
    value = ask.execute()
    assert ask.deferred is None
    assert value["data"]


@covers(FaultKind.IGNORE_IDEMPOTENCY_KEY)
def test_without_keys_on_the_server_an_unanswered_submit_is_left_to_a_person_when_asked_so(server, task):
    server.set_fault("ignore_idempotency_key")
    before = created(server)
    ask = with_fault(task, "close:point=submitted,times=1", on_orphan="fail")
    fails(errors.AgentJobSubmitError, ask)
    failure = fails(errors.AgentJobOrphanedError, ask.new_try())
    assert not failure.verdict.retryable
    assert created(server) == before + 1


# --- at the polls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["html", "empty_body", "close", "http_status:status=503"])
@covers(FaultKind.HTML, FaultKind.EMPTY_BODY, FaultKind.CLOSE, FaultKind.HTTP_STATUS)
def test_polls_that_are_no_news_are_tolerated(server, task, fault):
    separator = "," if ":" in fault else ":"
    ask = with_fault(task, f"{fault}{separator}point=poll,times=4")
    assert ask.run()["data"]
    assert [job.generation for job in ask.jobs()] == [1]


@covers(FaultKind.HANG)
def test_a_poll_that_hangs_is_given_up_and_repeated(server, task, monkeypatch):
    set_connection(monkeypatch, server, timeout=1)
    ask = with_fault(task, "hang:point=poll,seconds=30,times=1")
    assert ask.run()["data"]
    assert len(ask.jobs()) == 1


@covers(FaultKind.UNKNOWN_STATUS)
def test_an_unknown_status_is_work_in_progress(server, task):
    assert with_fault(task, "unknown_status:text=pondering").run()["data"]


@covers(FaultKind.SLOW)
def test_a_slow_job_is_waited_for(server, task):
    ask = with_fault(task, "slow:seconds=1")
    ask.execute()
    assert ask.deferred is not None
    assert ask.resume(ask.watch())["data"]


@covers(FaultKind.STUCK_QUEUED)
def test_a_job_that_never_starts_is_cancelled_at_its_deadline(server, task):
    ask = with_fault(task, "stuck_queued", timeout=timedelta(seconds=1))
    failure = fails(errors.AgentJobTimeoutError, ask)
    assert isinstance(failure, TimeoutError)
    assert failure.verdict.error_class is ErrorClass.TIMEOUT
    assert ask.job().phase is JobPhase.CANCELLED
    assert status_of(server, ask) == "cancelled"


@covers(FaultKind.HUGE_REPLY)
def test_a_huge_reply_is_fetched_by_the_worker_and_passed_on_by_reference(server, task, ledger):
    ask = with_fault(task, "huge_reply:size=3000000;slow:seconds=1")
    ask.execute()
    event = ask.watch()
    assert event["why"] == "too_large"
    value = ask.resume(event)
    assert value["text"] is None
    assert len(full_result(value, ledger.objects)["text"]) >= 3_000_000
    assert ask.job().result is None


@covers(FaultKind.LOST)
def test_a_job_that_the_server_forgot_is_lost_and_has_a_successor(server, task):
    ask = task()
    server.set_fault("lost", times=1)
    failure = fails(errors.AgentJobLostError, ask)
    assert failure.verdict.retryable
    assert ask.job().phase is JobPhase.LOST
    ask.new_try().run()
    assert [job.generation for job in ask.jobs()] == [1, 2]


# --- at the end ------------------------------------------------------------------------------------------


@covers(FaultKind.FAILED)
def test_a_failed_job_is_classified_and_the_next_try_is_a_new_job(server, task):
    ask = task()
    server.set_fault("failed", code="rate_limit_exceeded", message="slow down", times=1)
    failure = fails(errors.AgentJobFailedError, ask)
    assert failure.verdict.error_class is ErrorClass.RATE_LIMIT
    ask.new_try().run()
    assert [job.phase for job in ask.jobs()] == [JobPhase.FAILED, JobPhase.SUCCEEDED]


@covers(FaultKind.FAILED)
def test_a_job_that_fails_for_what_it_was_asked_is_not_retried(server, task):
    failure = fails(errors.AgentJobFailedError, with_fault(task, "failed:code=invalid_prompt"))
    assert not failure.verdict.retryable


@covers(FaultKind.FAILED_WITHOUT_ERROR)
def test_a_failure_without_a_reason_is_a_failure(server, task):
    failure = fails(errors.AgentJobFailedError, with_fault(task, "failed_without_error"))
    assert failure.verdict.retryable
    assert "gives no reason" in str(failure)


@covers(FaultKind.FAILED_AS_500)
def test_a_failed_job_in_a_500_reply_is_a_failed_job_and_no_lost_contact(server, task):
    ask = with_fault(task, "failed_as_500")
    fails(errors.AgentJobFailedError, ask)
    assert ask.job().phase is JobPhase.FAILED


@covers(FaultKind.COMPLETED_EMPTY)
def test_completed_without_output_is_no_success(server, task):
    failure = fails(errors.AgentJobEmptyError, with_fault(task, "completed_empty"))
    assert failure.verdict.retryable


@covers(FaultKind.COMPLETED_EMPTY)
def test_completed_without_output_is_accepted_when_asked_for(server, task):
    value = with_fault(task, "completed_empty", fail_on_empty=False).run()
    assert value["text"] is None


@covers(FaultKind.ERROR_TEXT)
def test_an_error_message_as_output_fails_where_a_guard_is_set(server, task):
    ask = with_fault(task, "error_text", protocol_options={"fail_on_output": r"^\s*⚠"})
    fails(errors.AgentJobFailedError, ask)
    assert ask.job().phase is JobPhase.FAILED


@covers(FaultKind.REFUSAL)
def test_a_refusal_is_no_success_and_not_retried(server, task):
    ask = with_fault(task, "refusal")
    failure = fails(errors.AgentJobRefusedError, ask)
    assert failure.verdict.error_class is ErrorClass.REFUSAL
    assert ask.job().phase is JobPhase.REFUSED


@covers(FaultKind.FUNCTION_CALL_ONLY)
def test_an_agent_that_waits_for_a_tool_is_blocked(server, task):
    ask = with_fault(task, "function_call_only")
    failure = fails(errors.AgentJobBlockedError, ask)
    assert not failure.verdict.retryable
    assert ask.job().phase is JobPhase.BLOCKED


@covers(FaultKind.INCOMPLETE)
def test_a_cut_off_output_is_no_result(server, task):
    failure = fails(errors.AgentJobIncompleteError, with_fault(task, "incomplete"))
    assert failure.verdict.error_class is ErrorClass.CONTEXT_LENGTH


@covers(FaultKind.INCOMPLETE)
def test_an_output_that_a_filter_cut_is_refused(server, task):
    failure = fails(errors.AgentJobRefusedError, with_fault(task, "incomplete:text=content_filter"))
    assert failure.verdict.error_class is ErrorClass.CONTENT_POLICY


# --- at the cancel ---------------------------------------------------------------------------------------


@covers(FaultKind.CANCEL_FLAP)
def test_a_cancelled_job_that_completes_later_stays_cancelled(server, task):
    ask = with_fault(task, "cancel_flap;stuck_queued", timeout=timedelta(seconds=1))
    fails(errors.AgentJobTimeoutError, ask)
    assert ask.job().phase is JobPhase.CANCELLED
    ask.new_try(metadata={}).run()
    assert [job.phase for job in ask.jobs()] == [JobPhase.CANCELLED, JobPhase.SUCCEEDED]


@covers(FaultKind.SLOW_CANCEL)
def test_a_slow_cancel_is_waited_for(server, task):
    ask = with_fault(task, "slow_cancel:seconds=1;stuck_queued", timeout=timedelta(seconds=1))
    fails(errors.AgentJobTimeoutError, ask)
    assert ask.job().phase is JobPhase.CANCELLED


@covers(FaultKind.CANCEL_REJECTED)
def test_a_cancel_that_is_refused_stays_on_record_and_the_next_try_is_a_new_job(server, task):
    ask = with_fault(task, "cancel_rejected;stuck_queued", timeout=timedelta(seconds=1))
    failure = fails(errors.AgentJobTimeoutError, ask)
    assert "could not be cancelled" in str(failure)
    job = ask.job()
    assert job.phase is JobPhase.SUBMITTED
    assert job.cancel_requested_at is not None
    ask.new_try(metadata={}, timeout=timedelta(hours=1)).run()
    assert [job.generation for job in ask.jobs()] == [1, 2]


def test_every_switch_of_the_server_is_met_above():
    assert set(FaultKind) == COVERED


def status_of(server: AgentServerProcess, ask):
    return next(job["status"] for job in server.jobs() if job["id"] == ask.job().ref["id"])


def set_connection(monkeypatch, server, **extra):
    import json

    connection = {"conn_type": "http", "host": server.url, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))

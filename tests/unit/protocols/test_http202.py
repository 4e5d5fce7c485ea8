"""Generic 202 + Location: each way a server may answer as one test."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timezone

import pytest

from airflow_relay.protocols.base import (
    HttpReply,
    InvalidRequest,
    JobRef,
    JobRejected,
    JobRequest,
    Phase,
    TransientReply,
    Usage,
)
from airflow_relay.protocols.http202 import Http202Protocol
from airflow_relay.protocols.urls import ForeignOrigin, join

PROTOCOL = Http202Protocol()
URL = "https://h/api/jobs"
MONITOR = "https://h/api/jobs/7"
REF = JobRef("http202", "7", {"location": MONITOR})
NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


def reply(body="", status: int = 200, url: str = URL, **headers) -> HttpReply:
    text = body if isinstance(body, str) else json.dumps(body)
    return HttpReply(status, {k.replace("_", "-"): v for k, v in headers.items()}, text, url)


def polled(body="", status: int = 200, protocol=PROTOCOL, **headers):
    return protocol.parse_poll(REF, reply(body, status, MONITOR, **headers))


# -- what is sent


def test_a_submit_asks_for_an_asynchronous_answer_under_its_key():
    call = PROTOCOL.submit(JobRequest(input="hi", key="k1", model="m", metadata={"a": "b"}, options={"n": 1}))
    assert (call.method, call.path) == ("POST", "/jobs")
    assert (call.headers["Prefer"], call.headers["Idempotency-Key"]) == ("respond-async", "k1")
    assert call.json == {"input": "hi", "model": "m", "metadata": {"a": "b"}, "n": 1}


def test_fields_are_renamed_and_the_server_may_hold_the_reply():
    protocol = Http202Protocol(fields={"input": "prompt", "model": "agent"}, wait_seconds=10.0)
    call = protocol.submit(JobRequest(input="hi", key="k", model="m"))
    assert call.json == {"prompt": "hi", "agent": "m"}
    assert call.headers["Prefer"] == "respond-async, wait=10"
    with pytest.raises(InvalidRequest, match="prompt"):
        protocol.submit(JobRequest(input="hi", key="k", options={"prompt": "other"}))


@pytest.mark.parametrize(
    "settings",
    [
        {"fields": {"prompt": "x"}},
        {"cancel_method": "GET"},
        {"cancel_path": "/jobs/{key}"},
        {"poll_path": "/jobs/{"},
        {"status_map": {"odd": "sideways"}},
    ],
)
def test_settings_that_no_request_can_be_made_with_are_refused(settings):
    with pytest.raises(InvalidRequest):
        Http202Protocol(**settings)


# -- the reply to a submit


@pytest.mark.parametrize("location", ["/api/jobs/7", "jobs/7", MONITOR, "http://h/api/jobs/7"])
def test_accepted_with_the_address_of_a_monitor(location):
    snapshot = PROTOCOL.parse_submit(reply("", 202, location=location, retry_after="3"))
    assert (snapshot.ref, snapshot.phase, snapshot.poll_after) == (REF, Phase.QUEUED, 3.0)
    call = PROTOCOL.poll(snapshot.ref)
    assert (call.method, join("https://h/api", call.path)) == ("GET", MONITOR)


def test_a_date_as_retry_after_counts_from_now():
    answer = reply("", 202, location=MONITOR, retry_after="Mon, 30 Nov 2026 12:00:20 GMT")
    assert PROTOCOL.parse_submit(dataclasses.replace(answer, received=NOW)).poll_after == 20.0


def test_the_id_in_the_body_names_the_job():
    snapshot = PROTOCOL.parse_submit(reply({"id": "job-9", "status": "Running"}, 202, location=MONITOR))
    assert (snapshot.ref.id, snapshot.phase, snapshot.raw_status) == ("job-9", Phase.RUNNING, "Running")


def test_an_id_without_a_location_is_asked_at_the_poll_path():
    protocol = Http202Protocol(poll_path="/status/{id}", id_path="data.0.id", cancel_path="{location}/stop")
    ref = protocol.parse_submit(reply({"data": [{"id": "a/b"}]}, 202)).ref
    assert protocol.poll(ref).path == "/status/a%2Fb"
    assert protocol.cancel(ref).path == "/status/a%2Fb/stop"


def test_accepted_without_any_address_is_ambiguous():
    with pytest.raises(TransientReply, match="no address to ask") as error:
        PROTOCOL.parse_submit(reply({"id": "7"}, 202))
    assert error.value.ambiguous


@pytest.mark.parametrize(
    "location", ["https://evil.example/jobs/7", "//evil.example/7", "http://h:81/7", "/a/%2e%2e/b"]
)
@pytest.mark.parametrize("status", [202, 303])
def test_a_location_on_another_host_is_refused(location, status):
    with pytest.raises(JobRejected, match="not followed"):
        PROTOCOL.parse_submit(reply("", status, location=location))
    with pytest.raises(JobRejected, match="not followed"):
        polled("", 303, location=location)


def test_a_location_on_another_host_is_refused_when_sent_even_if_the_asked_url_was_unknown():
    snapshot = PROTOCOL.parse_submit(reply("", 202, url="", location="https://evil.example/jobs/7"))
    with pytest.raises(ForeignOrigin):
        join("https://h/api", PROTOCOL.poll(snapshot.ref).path)
    with pytest.raises(JobRejected):
        PROTOCOL.parse_submit(reply("", 202, url="", location="http://["))


@pytest.mark.parametrize("status", [200, 201])
def test_the_server_may_finish_the_job_at_once(status):
    snapshot = PROTOCOL.parse_submit(reply({"answer": 42}, status))
    assert (snapshot.phase, snapshot.ref, snapshot.data) == (Phase.SUCCEEDED, None, {"answer": 42})


def test_created_with_a_status_is_a_job_at_work():
    snapshot = PROTOCOL.parse_submit(reply({"id": "7", "status": "pending"}, 201, location=MONITOR))
    assert (snapshot.phase, snapshot.ref) == (Phase.QUEUED, REF)


def test_see_other_at_submit_leads_to_the_monitor():
    snapshot = PROTOCOL.parse_submit(reply("", 303, location=MONITOR))
    assert (snapshot.ref, snapshot.phase, snapshot.poll_after) == (REF, Phase.RUNNING, 0.0)


def test_a_conflict_attaches_when_it_says_where_and_waits_when_not():
    snapshot = PROTOCOL.parse_submit(reply({}, 409, location=MONITOR))
    assert (snapshot.ref, snapshot.phase) == (REF, Phase.RUNNING)
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_submit(reply({"error": "in flight"}, 409, retry_after="2"))
    assert (error.value.ambiguous, error.value.retry_after) == (True, 2.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 307])
def test_a_refusal(status):
    with pytest.raises(JobRejected) as error:
        PROTOCOL.parse_submit(reply({"error": "no"}, status))
    assert error.value.status == status


@pytest.mark.parametrize(("status", "ambiguous"), [(500, True), (503, True), (408, True), (429, False)])
def test_trouble_at_submit(status, ambiguous):
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_submit(reply("<html>", status))
    assert error.value.ambiguous is ambiguous


# -- polling


@pytest.mark.parametrize(
    ("status", "body", "phase"),
    [
        (202, "", Phase.RUNNING),
        (202, {"status": "queued"}, Phase.QUEUED),
        (200, {"status": "In Progress"}, Phase.RUNNING),
        (200, {"status": "NotStarted"}, Phase.QUEUED),
        (200, {"status": "pondering"}, Phase.RUNNING),
        (200, {"status": "Succeeded", "result": "x"}, Phase.SUCCEEDED),
        (200, {"status": "canceled"}, Phase.CANCELLED),
        (200, {"status": "error"}, Phase.FAILED),
        (200, {"status": "refused"}, Phase.REFUSED),
        (200, {"status": "requires-action"}, Phase.BLOCKED),
        (200, {"status": "incomplete", "result": "half"}, Phase.INCOMPLETE),
    ],
)
def test_the_usual_words(status, body, phase):
    assert polled(body, status).phase is phase


def test_a_servers_own_words():
    protocol = Http202Protocol(
        status_map={"Brewing": "running", "poured": "succeeded"}, status_path="state.name"
    )
    assert polled({"state": {"name": "brewing"}}, protocol=protocol).phase is Phase.RUNNING
    assert polled({"state": {"name": "POURED"}, "result": "tea"}, protocol=protocol).phase is Phase.SUCCEEDED


def test_progress_is_a_remark():
    assert polled({"status": "running", "progress": 0.4}, 202).progress == "0.4"


def test_result_usage_and_data():
    body = {
        "status": "done",
        "result": {"a": 1},
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.1},
    }
    snapshot = polled(body)
    assert (snapshot.text, snapshot.data, snapshot.usage) == ('{"a": 1}', {"a": 1}, Usage(1, 2, 3, 0.1))
    text = polled({"status": "done", "result": '```json\n{"a": 1}\n```'})
    assert text.data == {"a": 1}


def test_a_result_deep_in_the_body():
    protocol = Http202Protocol(result_path="choices.0.text")
    assert polled({"status": "ok", "choices": [{"text": "x"}]}, protocol=protocol).text == "x"


def test_a_text_is_a_result_and_a_page_is_none():
    assert polled("All good.", content_type="text/plain; charset=utf-8").text == "All good."
    for page in ("<html>", ""):
        with pytest.raises(TransientReply):
            polled(page, content_type="text/html")
    with pytest.raises(TransientReply):
        polled('{"status": "don', content_type="application/json")


@pytest.mark.parametrize(
    "body", [{"status": "done"}, {"status": "done", "result": ""}, {"status": "done", "result": []}]
)
def test_finished_without_a_result_is_a_failure_unless_allowed(body):
    assert polled(body).error.code == "empty_output"
    assert polled(body).phase is Phase.FAILED
    assert polled(body, protocol=Http202Protocol(allow_empty=True)).phase is Phase.SUCCEEDED


def test_finished_with_no_content_is_a_failure():
    assert polled("", 204).error.code == "empty_output"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ("boom", None, "boom"),
        ({"code": "server_error", "message": "boom"}, "server_error", "boom"),
        (["a"], None, '["a"]'),
        (None, "failed", "the server says 'failed' and gives no reason"),
    ],
)
def test_a_failure_keeps_the_servers_words(error, code, text):
    snapshot = polled({"status": "failed", "error": error})
    assert (snapshot.phase, snapshot.error.code, snapshot.error.message) == (Phase.FAILED, code, text)


def test_a_body_with_an_error_and_no_status_is_a_failure():
    assert polled({"error": {"message": "boom"}}).phase is Phase.FAILED


def test_see_other_leads_to_the_result():
    moved = polled("", 303, location="/api/results/7")
    assert (moved.phase, moved.poll_after) == (Phase.RUNNING, 0.0)
    assert PROTOCOL.poll(moved.ref).path == "https://h/api/results/7"
    result = PROTOCOL.parse_poll(moved.ref, reply({"status": "pending", "x": 1}))
    assert (result.phase, result.data) == (Phase.SUCCEEDED, {"status": "pending", "x": 1})
    assert JobRef.from_json(moved.ref.to_json()) == moved.ref


@pytest.mark.parametrize("status", [404, 410])
@pytest.mark.parametrize("body", ["", "<html>not found</html>", {"error": "gone"}])
def test_a_job_that_is_gone_is_lost(status, body):
    assert polled(body, status).phase is Phase.LOST


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_trouble_is_no_news(status):
    with pytest.raises(TransientReply) as error:
        polled("<html>", status, retry_after="5")
    assert error.value.retry_after == 5.0


def test_a_refused_poll():
    with pytest.raises(JobRejected):
        polled("", 401)
    with pytest.raises(JobRejected):
        polled("", 301, location="/elsewhere")


# -- cancelling


def test_no_cancel_unless_told_how():
    assert PROTOCOL.cancel(REF) is None
    assert not PROTOCOL.capabilities.cancel


def test_cancel_by_deleting_the_monitor_or_by_a_path():
    delete = Http202Protocol(cancel_path="{location}").cancel(REF)
    assert (delete.method, delete.path) == ("DELETE", MONITOR)
    post = Http202Protocol(cancel_path="/jobs/{id}/cancel", cancel_method="POST").cancel(REF)
    assert (post.method, post.path) == ("POST", "/jobs/7/cancel")


@pytest.mark.parametrize(
    ("method", "status", "body", "phase"),
    [
        ("DELETE", 204, "", Phase.CANCELLED),
        ("DELETE", 202, "", Phase.RUNNING),
        ("POST", 200, {"status": "cancelled"}, Phase.CANCELLED),
        ("POST", 200, {"status": "cancelling"}, Phase.RUNNING),
        ("POST", 200, "", Phase.RUNNING),
        ("POST", 409, {"error": "finished"}, Phase.RUNNING),
        ("DELETE", 400, "", Phase.RUNNING),
        ("DELETE", 404, "", Phase.LOST),
    ],
)
def test_what_a_cancel_may_be_answered_with(method, status, body, phase):
    protocol = Http202Protocol(cancel_path="{location}", cancel_method=method)
    snapshot = protocol.parse_cancel(REF, reply(body, status, MONITOR))
    assert snapshot.phase is phase
    assert snapshot.poll_after == (0.0 if phase is Phase.RUNNING else None)


def test_idempotency_is_promised_only_when_the_server_does():
    assert not PROTOCOL.capabilities.idempotent_submit
    assert Http202Protocol(idempotency=True).capabilities.idempotent_submit

"""Each status, and each deviation that a server was seen to show, as one test."""

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
    Snapshot,
    TransientReply,
    Usage,
)
from airflow_relay.protocols.responses import ResponsesProtocol

PROTOCOL = ResponsesProtocol()
REF = JobRef("responses", "resp_1")
NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


def message(text: str, **fields) -> dict:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
        **fields,
    }


def response(status: str | None = "completed", **fields) -> dict:
    body = {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "output": [],
        "error": None,
        "usage": None,
    }
    return {**body, **fields}


def reply(body, status: int = 200, **headers) -> HttpReply:
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return HttpReply(status, {k.replace("_", "-"): v for k, v in headers.items()}, text)


def polled(body, status: int = 200) -> Snapshot:
    return PROTOCOL.parse_poll(REF, reply(body, status))


# -- what is sent


def test_a_submit_is_always_in_the_background_and_stored():
    call = PROTOCOL.submit(
        JobRequest(
            input="hi", key="k1", model="m", instructions="be brief", metadata={"a": "b"},
            options={"max_output_tokens": 5},
        )
    )  # fmt: skip
    assert (call.method, call.path, call.headers["Idempotency-Key"]) == ("POST", "/v1/responses", "k1")
    assert call.json == {
        "input": "hi",
        "model": "m",
        "instructions": "be brief",
        "background": True,
        "store": True,
        "max_output_tokens": 5,
        "metadata": {"a": "b", "relay_key": "k1"},
    }


@pytest.mark.parametrize("name", ["stream", "background", "store", "input", "metadata"])
def test_an_option_that_relay_sets_itself_is_refused(name):
    with pytest.raises(InvalidRequest, match=name):
        PROTOCOL.submit(JobRequest(input="hi", key="k", options={name: False}))


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({str(n): "" for n in range(17)}, "at most 16 pairs, got 17"),
        ({"k" * 65: "v"}, "at most 64"),
        ({"k": "v" * 513}, "a value 512"),
        ({"k": 1}, "must be text"),
    ],
)
def test_metadata_over_the_limits_is_refused(metadata, why):
    with pytest.raises(InvalidRequest, match=why):
        PROTOCOL.submit(JobRequest(input="hi", key="k", metadata=metadata))


def test_metadata_at_the_limits_is_sent_as_it_is():
    metadata = {f"{n:02}".ljust(64, "k"): "v" * 512 for n in range(16)}
    assert PROTOCOL.submit(JobRequest(input="hi", key="k", metadata=metadata)).json["metadata"] == metadata


def test_long_ids_and_slashes_are_quoted_in_the_path():
    ref = JobRef("responses", "litellm_poll_a/b+c=?#" + "x" * 900)
    assert PROTOCOL.poll(ref).path == "/v1/responses/litellm_poll_a%2Fb%2Bc%3D%3F%23" + "x" * 900
    assert PROTOCOL.cancel(ref).path.endswith("x/cancel")
    assert (PROTOCOL.poll(ref).method, PROTOCOL.cancel(ref).method) == ("GET", "POST")


# -- the reply to a submit


def test_a_queued_reply_gives_the_reference():
    snapshot = PROTOCOL.parse_submit(reply(response("queued"), openai_poll_after_ms="1500"))
    assert (snapshot.ref, snapshot.phase, snapshot.poll_after) == (REF, Phase.QUEUED, 1.5)


def test_furiosa_ignores_background_and_answers_with_the_end():
    snapshot = PROTOCOL.parse_submit(reply(response(output=[message("done")])))
    assert (snapshot.phase, snapshot.text) == (Phase.SUCCEEDED, "done")


def test_a_terminal_reply_to_a_submit_needs_no_id():
    body = response(output=[message("done")])
    del body["id"]
    assert PROTOCOL.parse_submit(reply(body)).ref is None


def test_a_copy_of_the_api_that_leaves_the_status_out_returns_the_end():
    assert PROTOCOL.parse_submit(reply(response(None, output=[message("done")]))).phase is Phase.SUCCEEDED
    assert PROTOCOL.parse_submit(reply(response(None, error={"message": "x"}))).phase is Phase.FAILED


@pytest.mark.parametrize("body", [response("queued", id=None), response("queued", id=".."), {"ok": True}, []])
def test_a_success_that_names_no_job_is_ambiguous(body):
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_submit(reply(body))
    assert error.value.ambiguous


@pytest.mark.parametrize(
    ("status", "ambiguous"), [(500, True), (502, True), (504, True), (408, True), (429, False), (425, False)]
)
def test_a_transient_reply_says_whether_the_job_may_exist(status, ambiguous):
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_submit(reply("<html>", status, retry_after="7"))
    assert (error.value.ambiguous, error.value.retry_after, error.value.status) == (ambiguous, 7.0, status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_definitive_refusal_keeps_status_headers_and_body(status):
    with pytest.raises(JobRejected) as error:
        PROTOCOL.parse_submit(reply({"error": {"code": "invalid_prompt"}}, status, x_request_id="r"))
    assert (error.value.status, error.value.code) == (status, "invalid_prompt")
    assert error.value.headers == {"x-request-id": "r"}
    assert "invalid_prompt" in error.value.body


def test_openclaw_refuses_background_with_400():
    with pytest.raises(JobRejected, match="Unrecognized key"):
        PROTOCOL.parse_submit(reply({"error": {"message": ': Unrecognized key: "background"'}}, 400))


def test_an_error_body_with_status_200_is_a_refusal():
    with pytest.raises(JobRejected):
        PROTOCOL.parse_submit(reply({"error": {"message": "no such model"}}))


def test_a_redirect_is_not_followed_and_the_message_says_what_to_do():
    with pytest.raises(JobRejected, match="Put the final address into the connection"):
        PROTOCOL.parse_submit(reply("", 307, location="https://elsewhere/"))


@pytest.mark.parametrize(
    "body",
    [
        response("in_progress"),
        {"error": {"code": "conflict", "response_id": "resp_1"}},
        {"existing_response_id": "resp_1"},
        {"error": {"details": {"existing_id": "resp_1"}}},
    ],
)
def test_a_conflict_that_names_the_job_attaches_to_it(body):
    snapshot = PROTOCOL.parse_submit(reply(body, 409))
    assert (snapshot.ref, snapshot.phase, snapshot.poll_after) == (REF, Phase.RUNNING, 0.0)


@pytest.mark.parametrize("body", [{"error": {"id": "err_1", "message": "in flight"}}, "", "<html>"])
def test_a_conflict_without_an_id_is_still_in_flight(body):
    with pytest.raises(TransientReply, match="in flight") as error:
        PROTOCOL.parse_submit(reply(body, 409))
    assert error.value.ambiguous


# -- polling: no news


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 520, 429, 408, 425, 499])
def test_a_poll_that_meets_trouble_is_no_news(status):
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_poll(REF, reply({"error": {"message": "x"}}, status, retry_after_ms="500"))
    assert error.value.retry_after == 0.5
    assert not error.value.ambiguous


@pytest.mark.parametrize(
    "body",
    ["<html>login</html>", "", '{"id": "resp_1", "sta', "[]", "null", '{"error": {}}', '{"status": "error"}'],
)
def test_a_poll_that_is_answered_by_something_else_is_no_news(body):
    with pytest.raises(TransientReply):
        polled(body)


@pytest.mark.parametrize("status", [401, 403, 400])
def test_a_poll_that_is_refused_is_a_refusal(status):
    with pytest.raises(JobRejected):
        polled({"error": {"message": "no"}}, status)


@pytest.mark.parametrize(("status", "body"), [(404, {"error": {}}), (404, ""), (410, ""), (404, "not found")])
def test_a_job_that_the_server_no_longer_knows_is_lost(status, body):
    snapshot = polled(body, status)
    assert (snapshot.phase, snapshot.error.code, snapshot.error.status) == (Phase.LOST, "lost", status)


def test_a_proxys_404_page_does_not_lose_the_job():
    with pytest.raises(TransientReply, match="a proxy answered"):
        polled("<html>404 default backend</html>", 404)


# -- polling: phases


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("queued", Phase.QUEUED),
        ("in_progress", Phase.RUNNING),
        ("cancelled", Phase.CANCELLED),
        ("canceled", Phase.CANCELLED),
        ("requires_action", Phase.BLOCKED),
        ("hibernating", Phase.RUNNING),
        ("", Phase.RUNNING),
    ],
)
def test_each_status_has_a_phase_and_an_unknown_one_is_work_in_progress(status, phase):
    snapshot = polled(response(status))
    assert (snapshot.phase, snapshot.raw_status, snapshot.ref) == (phase, status, REF)


def test_a_date_as_poll_hint_counts_from_now():
    hint = reply(response("queued"), retry_after="Mon, 30 Nov 2026 12:00:20 GMT")
    assert PROTOCOL.parse_poll(REF, dataclasses.replace(hint, received=NOW)).poll_after == 20.0


def test_completed_gives_text_data_and_usage():
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12, "output_tokens_details": {}}
    snapshot = polled(response(output=[{"type": "reasoning"}, message('{"a": 1}')], usage=usage))
    assert (snapshot.phase, snapshot.text, snapshot.data) == (Phase.SUCCEEDED, '{"a": 1}', {"a": 1})
    assert snapshot.usage == Usage(5, 7, 12)
    assert snapshot.error is None


def test_only_the_final_answer_counts_when_messages_have_phases():
    output = [message("thinking", phase="commentary"), message("answer", phase="final_answer"), message("x")]
    assert polled(response(output=output)).text == "answer"


def test_commentary_is_no_output():
    snapshot = polled(response(output=[message("thinking", phase="commentary")]))
    assert (snapshot.phase, snapshot.error.code) == (Phase.FAILED, "empty_output")


def test_a_refusal_inside_a_completed_response_is_refused():
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    snapshot = polled(response(output=[refusal]))
    assert (snapshot.phase, snapshot.error.code) == (Phase.REFUSED, "refusal")
    assert snapshot.error.message == "I cannot help with that."


@pytest.mark.parametrize("before", [[], [message("Let me look that up.")]])
def test_a_response_that_asks_for_a_tool_is_blocked(before):
    call = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
    snapshot = polled(response(output=[*before, call]))
    assert (snapshot.phase, snapshot.error.code) == (Phase.BLOCKED, "tool_call")
    assert "search" in snapshot.error.message


def test_a_call_that_the_server_answered_itself_blocks_nothing():
    call = {"type": "function_call", "call_id": "c1", "name": "search"}
    answer = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    assert polled(response(output=[call, answer, message("found")])).phase is Phase.SUCCEEDED
    assert polled(response(output=[call, message("found")])).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    "output", [[], None, [message("")], [message(" \n")], [{"type": "reasoning"}], ["x", 3]]
)
def test_litellm_completed_and_empty_is_a_failure(output):
    snapshot = polled(response(output=output))
    assert (snapshot.phase, snapshot.error.code) == (Phase.FAILED, "empty_output")


def test_an_empty_answer_can_be_allowed():
    snapshot = ResponsesProtocol(allow_empty=True).parse_poll(REF, reply(response()))
    assert snapshot.phase is Phase.SUCCEEDED


def test_a_picture_is_output():
    picture = {"type": "image_generation_call", "result": "aGk=", "output_format": "webp"}
    snapshot = polled(response(output=[picture]))
    assert snapshot.phase is Phase.SUCCEEDED
    assert snapshot.artifacts == [{"type": "image", "media_type": "image/webp", "data": "aGk="}]


def test_vllm_failed_without_an_error():
    snapshot = polled(response("failed"))
    assert snapshot.phase is Phase.FAILED
    assert "gives no reason" in snapshot.error.message


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ({"code": "server_error", "message": "boom"}, "server_error", "boom"),
        ({"type": "api_error", "message": "boom"}, "api_error", "boom"),
        ("boom", None, "boom"),
    ],
)
def test_a_failure_keeps_the_servers_words(error, code, text):
    snapshot = polled(response("failed", error=error))
    assert (snapshot.phase, snapshot.error.code, snapshot.error.message) == (Phase.FAILED, code, text)


def test_completed_with_an_error_is_a_failure():
    assert polled(response(output=[message("x")], error={"code": "server_error"})).phase is Phase.FAILED


def test_openclaw_http_500_with_a_failed_response_is_a_failed_job():
    body = {
        "id": "resp_9",
        "object": "response",
        "status": "failed",
        "error": {"code": "api_error", "message": "x"},
    }
    for snapshot in (polled(body, 500), PROTOCOL.parse_submit(reply(body, 500))):
        assert (snapshot.phase, snapshot.error.code, snapshot.error.status) == (
            Phase.FAILED,
            "api_error",
            500,
        )


def test_incomplete_keeps_the_part_and_the_reason():
    body = response(
        "incomplete", output=[message("half a")], incomplete_details={"reason": "max_output_tokens"}
    )
    snapshot = polled(body)
    assert (snapshot.phase, snapshot.text) == (Phase.INCOMPLETE, "half a")
    assert snapshot.error.code == "max_output_tokens"


def test_incomplete_by_content_filter_is_a_refusal_not_a_partial_result():
    snapshot = polled(response("incomplete", incomplete_details={"reason": "content_filter"}))
    assert (snapshot.phase, snapshot.error.code) == (Phase.REFUSED, "content_filter")


def test_incomplete_without_details():
    assert polled(response("incomplete", incomplete_details=None)).phase is Phase.INCOMPLETE


# -- cancelling


def test_a_cancelled_job():
    assert PROTOCOL.parse_cancel(REF, reply(response("cancelled"))).phase is Phase.CANCELLED


def test_a_cancel_returns_the_final_object_of_a_job_that_was_done():
    snapshot = PROTOCOL.parse_cancel(REF, reply(response(output=[message("done")])))
    assert (snapshot.phase, snapshot.text) == (Phase.SUCCEEDED, "done")


@pytest.mark.parametrize(
    ("status", "body"),
    [(400, {"error": {"message": "Cannot cancel a synchronous response."}}), (409, {}), (204, "")],
)
def test_a_cancel_that_tells_no_outcome_asks_for_a_poll_at_once(status, body):
    snapshot = PROTOCOL.parse_cancel(REF, reply(body, status))
    assert (snapshot.phase, snapshot.poll_after) == (Phase.RUNNING, 0.0)


def test_a_cancel_of_a_job_that_is_gone_is_lost():
    assert PROTOCOL.parse_cancel(REF, reply({}, 404)).phase is Phase.LOST


def test_a_cancel_that_meets_trouble_is_no_news():
    with pytest.raises(TransientReply):
        PROTOCOL.parse_cancel(REF, reply("", 503))
    with pytest.raises(JobRejected):
        PROTOCOL.parse_cancel(REF, reply("", 405))


def test_there_is_no_look_up_and_no_promise_unless_the_server_gives_one():
    request = JobRequest(input="x", key="k")
    assert PROTOCOL.find(request) is None
    assert (PROTOCOL.capabilities.find, PROTOCOL.capabilities.idempotent_submit) == (False, False)
    assert ResponsesProtocol(idempotency=True).capabilities.idempotent_submit
    with pytest.raises(InvalidRequest, match="no look-up"):
        PROTOCOL.parse_find(request, reply({}))

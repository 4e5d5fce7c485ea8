"""The classifier against real payloads, the same payloads in other wrappings, and its contract."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_relay.core.errors import (
    NOT_RETRYABLE,
    RETRYABLE,
    SYSTEMIC,
    ErrorClass,
    Verdict,
    classify,
    classify_line,
)

DATA = Path(__file__).parent / "data"


def _load(name):
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


CORPUS = _load("agent_errors.jsonl")
MORE = _load("more_agent_errors.jsonl")
EVERYTHING = CORPUS + MORE
WITH_BODY = [payload for payload in EVERYTHING if payload["body"]]


def _id(payload):
    return payload["id"]


def _accepted(payload):
    return {payload["expected"], *payload.get("alt", [])}


def _classify(payload):
    return classify(payload["status"], payload["headers"], payload["body"], payload.get("exception"))


# --- real payloads --------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", EVERYTHING, ids=_id)
def test_a_real_payload_gets_an_accepted_class(payload):
    verdict = _classify(payload)
    assert verdict.error_class.value in _accepted(payload), verdict.reason


@pytest.mark.parametrize("payload", EVERYTHING, ids=_id)
def test_a_real_payload_gives_the_wait_that_the_server_asked_for(payload):
    assert _classify(payload).retry_after == (
        None if payload["retry_after_s"] is None else pytest.approx(payload["retry_after_s"])
    )


def test_nearly_every_payload_gets_its_first_choice():
    exact = sum(_classify(payload).error_class.value == payload["expected"] for payload in EVERYTHING)
    assert exact / len(EVERYTHING) > 0.94


def test_the_payloads_cover_every_class_and_cite_their_source():
    assert {payload["expected"] for payload in EVERYTHING} == {kind.value for kind in ErrorClass}
    assert all(payload["source"] for payload in EVERYTHING)
    assert len(CORPUS) == 155
    assert len(MORE) >= 60


# --- the same payload in another wrapping ---------------------------------------------------------


class _SdkError(Exception):
    def __init__(self, message, response):
        super().__init__(message)
        self.response = response


def _text(payload):
    body = payload["body"]
    return body if isinstance(body, str) else json.dumps(body)


def _under_error(payload):
    return {**_same(payload), "body": {"error": payload["body"]}}


def _in_a_list(payload):
    return {**_same(payload), "body": [payload["body"]]}


def _dumped(payload):
    return {**_same(payload), "body": json.dumps(payload["body"])}


def _dumped_twice(payload):
    return {**_same(payload), "body": json.dumps(json.dumps(payload["body"]))}


def _as_bytes(payload):
    return {**_same(payload), "body": _text(payload).encode()}


def _as_sdk_text(payload):
    status = payload["status"]
    lead = f"Error code: {status} - " if status else "APIError: "
    return {"headers": payload["headers"], "body": f"{lead}{payload['body']!r}"}


def _as_exception_text(payload):
    wrapped = _as_sdk_text(payload)
    return {"headers": payload["headers"], "exception": f"openai.APIStatusError: {wrapped['body']}"}


def _as_exception_with_response(payload):
    response = SimpleNamespace(
        status_code=payload["status"], headers=payload["headers"], text=_text(payload), content=None
    )
    return {"exception": _SdkError("the request failed", response)}


def _as_cause_of_another_exception(payload):
    outer = RuntimeError("the agent job failed")
    outer.__cause__ = _as_exception_with_response(payload)["exception"]
    return {"exception": outer}


def _in_a_proxy_page(payload):
    page = (
        "<html><head><title>Gateway</title><style>.box{width:500px}</style></head>"
        f"<body><pre>{html.escape(_text(payload))}</pre></body></html>"
    )
    return {**_same(payload), "body": page}


def _as_error_event(payload):
    event = json.dumps({"status": payload["status"], "error": payload["body"]})
    return {
        "status": 200,
        "headers": payload["headers"],
        "body": f"event: error\ndata: {event}\n\ndata: [DONE]\n",
    }


def _in_a_log_line(payload):
    status = f"status={payload['status']} " if payload["status"] else ""
    line = f"2026-01-02 03:04:05,678 ERROR agent call failed: {status}body={_text(payload)}"
    return {"headers": payload["headers"], "body": line}


def _same(payload):
    return {"status": payload["status"], "headers": payload["headers"]}


@pytest.mark.parametrize(
    "wrap",
    [
        _under_error,
        _in_a_list,
        _dumped,
        _dumped_twice,
        _as_bytes,
        _as_sdk_text,
        _as_exception_text,
        _as_exception_with_response,
        _as_cause_of_another_exception,
        _in_a_proxy_page,
        _as_error_event,
        _in_a_log_line,
    ],
)
def test_a_wrapping_keeps_the_class(wrap):
    lost = []
    for payload in WITH_BODY:
        verdict = classify(**wrap(payload))
        if verdict.error_class.value not in _accepted(payload):
            lost.append((payload["id"], payload["expected"], verdict.error_class.value, verdict.reason))
    assert lost == []


@pytest.mark.parametrize("payload", [p for p in WITH_BODY if p["status"] and p["status"] >= 400], ids=_id)
def test_a_gateway_that_answers_500_for_everything_does_not_hide_the_cause(payload):
    message = f"Upstream answered {payload['status']}: {_text(payload)}"
    body = {"error": {"message": message, "type": "api_error", "code": 500}}
    verdict = classify(500, payload["headers"], body)
    assert verdict.error_class.value in _accepted(payload), verdict.reason


# --- Python exceptions ----------------------------------------------------------------------------


def _raised(outer, inner):
    outer.__cause__ = inner
    return outer


def test_sdk_exceptions_are_read_through_their_response():
    import httpx
    import openai

    request = httpx.Request("POST", "https://api.example.com/v1/responses")
    body = {"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}}
    response = httpx.Response(429, json=body, headers={"retry-after": "7"}, request=request)
    error = openai.RateLimitError("Error code: 429", response=response, body=body["error"])
    assert classify(exception=error) == Verdict(ErrorClass.RATE_LIMIT, 7.0, classify(exception=error).reason)


def test_a_connection_error_of_an_sdk_takes_the_class_of_its_cause():
    import httpx
    import openai

    request = httpx.Request("POST", "https://api.example.com/v1/responses")
    timeout = _raised(openai.APITimeoutError(request=request), httpx.ReadTimeout("", request=request))
    refused = _raised(
        openai.APIConnectionError(request=request), httpx.ConnectError("[Errno 111] Connection refused")
    )
    hidden = _raised(openai.APIConnectionError(request=request), httpx.ReadTimeout("", request=request))
    assert classify(exception=timeout).error_class is ErrorClass.TIMEOUT
    assert classify(exception=refused).error_class is ErrorClass.NETWORK
    assert classify(exception=hidden).error_class is ErrorClass.TIMEOUT


def test_the_body_of_an_unread_stream_is_left_alone():
    import httpx

    request = httpx.Request("POST", "https://api.example.com")
    response = httpx.Response(503, stream=httpx.ByteStream(b"never read"), request=request)
    error = httpx.HTTPStatusError("Server error", request=request, response=response)
    assert classify(exception=error).error_class is ErrorClass.OVERLOADED


def test_asyncio_timeouts_are_timeouts_although_a_cancellation_caused_them():
    import asyncio

    error = _raised(TimeoutError(), asyncio.CancelledError())
    assert classify(exception=error).error_class is ErrorClass.TIMEOUT
    assert classify(exception=asyncio.CancelledError()).error_class is ErrorClass.CANCELLED


def test_a_botocore_error_is_read_through_its_response_dict():
    class ClientError(Exception):
        response = {  # noqa: RUF012
            "Error": {"Code": "ThrottlingException", "Message": "Too many requests"},
            "ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "3"}},
        }

    verdict = classify(exception=ClientError("An error occurred"))
    assert (verdict.error_class, verdict.retry_after) == (ErrorClass.RATE_LIMIT, 3.0)


def test_a_grpc_error_is_read_through_its_methods():
    class RpcError(Exception):
        def code(self):
            return SimpleNamespace(name="RESOURCE_EXHAUSTED", value=(8, "resource exhausted"))

        def details(self):
            return "Quota exceeded for requests per minute"

        def trailing_metadata(self):
            return ()

    assert classify(exception=RpcError()).error_class is ErrorClass.RATE_LIMIT


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), ErrorClass.NETWORK),
        (ConnectionRefusedError(111, "Connection refused"), ErrorClass.NETWORK),
        (BrokenPipeError(32, "Broken pipe"), ErrorClass.NETWORK),
        (TimeoutError(), ErrorClass.TIMEOUT),
        (KeyboardInterrupt(), ErrorClass.CANCELLED),
        (json.JSONDecodeError("Expecting value", "<html>", 0), ErrorClass.SERVER_ERROR),
        (ValueError("boom"), ErrorClass.UNKNOWN),
        (KeyError("choices"), ErrorClass.UNKNOWN),
    ],
)
def test_builtin_exceptions(error, expected):
    assert classify(exception=error).error_class is expected


def test_an_exception_that_breaks_when_it_is_looked_at_is_unknown():
    class HostileError(Exception):
        def __str__(self):
            raise RuntimeError

        @property
        def response(self):
            raise RuntimeError

    assert classify(exception=HostileError()).error_class is ErrorClass.UNKNOWN


def test_a_circle_of_causes_ends():
    first, second = ValueError("a"), ConnectionResetError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(exception=first).error_class is ErrorClass.NETWORK


# --- contract -------------------------------------------------------------------------------------


def test_the_sets_divide_the_classes_as_the_design_says():
    assert {kind.value for kind in RETRYABLE} == {
        "rate_limit",
        "overloaded",
        "timeout",
        "network",
        "server_error",
        "unknown",
    }
    assert set(ErrorClass) == RETRYABLE | NOT_RETRYABLE
    assert not RETRYABLE & NOT_RETRYABLE
    item_level = {"content_policy", "refusal", "invalid_request", "context_length", "cancelled"}
    assert {kind.value for kind in set(ErrorClass) - SYSTEMIC} == item_level


@pytest.mark.parametrize("kind", ErrorClass)
def test_a_verdict_is_retryable_by_its_class(kind):
    assert Verdict(kind).retryable is (kind in RETRYABLE)
    assert isinstance(kind, str)


def test_an_answer_without_failure_is_unknown():
    text = "The rate limit was exceeded because the API key is invalid."
    body = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}
    assert classify(200, {}, body).error_class is ErrorClass.UNKNOWN
    assert classify().error_class is ErrorClass.UNKNOWN


def test_what_the_caller_wrote_decides_nothing():
    body = {"error": {"message": "Bad gateway"}, "input": "insufficient_quota: content_filter refused"}
    assert classify(502, {}, body).error_class is ErrorClass.SERVER_ERROR


def test_core_errors_import_without_airflow_and_sqlalchemy():
    code = (
        "import sys\n"
        "for name in ('airflow', 'sqlalchemy', 'httpx', 'requests'):\n"
        "    sys.modules[name] = None\n"
        "from airflow_relay.core.errors import classify\n"
        "print(classify(429).error_class.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "rate_limit"


# --- one JSON line --------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", EVERYTHING, ids=_id)
def test_a_line_gives_the_verdict_of_the_payload(payload):
    line = json.dumps({name: payload.get(name) for name in ("status", "headers", "body", "exception")})
    verdict = _classify(payload)
    expected = {
        "error_class": verdict.error_class.value,
        "retryable": verdict.retryable,
        "retry_after": verdict.retry_after,
        "reason": verdict.reason,
    }
    if payload["status"] is None and payload["body"] is None and payload.get("exception") is None:
        expected["reason"] = classify_line(line)["reason"]
    assert classify_line(line) == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "object is needed, not list"),
        ("{}", "none of status, headers, body, exception"),
        (None, "not JSON"),
    ],
)
def test_a_bad_line_names_its_problem(line, problem):
    verdict = classify_line(line)
    assert verdict["error_class"] == "unknown"
    assert problem in verdict["reason"]
    assert set(verdict) == {"error_class", "retryable", "retry_after", "reason"}

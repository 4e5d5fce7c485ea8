"""Whatever a server answers, a parser gives a snapshot or one of the two reply errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_relay.protocols.a2a import A2AProtocol
from airflow_relay.protocols.base import HttpReply, JobRef, JobRejected, JobRequest, Snapshot, TransientReply
from airflow_relay.protocols.http202 import Http202Protocol
from airflow_relay.protocols.openclaw import OpenClawProtocol
from airflow_relay.protocols.responses import ResponsesProtocol
from airflow_relay.protocols.urls import join, same_origin

BASE = "https://h/api"
PROTOCOLS = [
    ResponsesProtocol(),
    A2AProtocol(),
    A2AProtocol(binding="HTTP+JSON"),
    A2AProtocol(version="0.3"),
    OpenClawProtocol(),
    Http202Protocol(poll_path="/jobs/{id}", cancel_path="{location}"),
]
REQUEST = JobRequest(input="x", key="k")

# Words that the parsers look for, so that random bodies get past the first look.
NAMES_TEXT = """
id object status state output type content text refusal phase error code message usage input_tokens details
reason incomplete_details result task tasks contextId artifacts parts data metadata jsonrpc location progress
name call_id artifactId nextPageToken supportedInterfaces url protocolBinding protocolVersion
"""
WORDS_TEXT = """
response completed failed in_progress incomplete cancelled message output_text refusal function_call 2.0 k
final_answer commentary content_filter TASK_STATE_COMPLETED TASK_STATE_WORKING input-required TASK_NOT_FOUND
done running ⚠️ image_generation_call JSONRPC 1.0 https://h/x https://evil.example/ /..
"""
NAMES = st.sampled_from(NAMES_TEXT.split())
WORDS = st.sampled_from(WORDS_TEXT.split())
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
    | st.sampled_from([-32000, -32001, -32002, -32603, "\ud800", "\0", 10**40])
)  # fmt: skip
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)
OBJECTS = st.dictionaries(NAMES, JSON_VALUES, max_size=8)
SHAPED = (
    st.builds(lambda body: {"id": "r", "object": "response", **body}, OBJECTS)
    | st.builds(lambda result: {"jsonrpc": "2.0", "id": "relay", "result": result}, OBJECTS)
    | st.builds(
        lambda state, body: {
            "jsonrpc": "2.0",
            "result": {**body, "id": "t", "status": {"state": state, **body}},
        },
        WORDS,
        OBJECTS,
    )
)
BODIES = (
    st.binary(max_size=60)
    | st.text(max_size=60)
    | st.builds(json.dumps, JSON_VALUES)
    | st.builds(json.dumps, SHAPED)
    | st.builds(lambda v: json.dumps(v)[:-1], OBJECTS)
    | st.sampled_from(["[" * 5000, '{"a":' * 300 + "1" + "}" * 300, "<html>", "\ufeff", "9" * 5000])
)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Date", "Location", "Content-Type", "retry-after-ms", "X-Other"]),
    WORDS
    | st.text(max_size=20)
    | st.sampled_from(
        ["text/plain", "text/html", "5", "-1", "Mon, 30 Nov 2026 12:00:00 GMT", "/api/jobs/1", "http://["]
    ),
    max_size=4,
)
REPLIES = st.builds(
    HttpReply,
    st.sampled_from([200, 202, 204, 303, 400, 404, 409, 500, 503]) | st.integers(0, 999),
    HEADERS,
    BODIES,
    st.sampled_from(["", "https://h/api/jobs"]),
)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{p.name}-{getattr(p, 'version', '')}")
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(reply=REPLIES)
def test_any_reply_gives_a_snapshot_or_a_typed_error(protocol, reply):
    ref = JobRef(protocol.name, "r", {"location": "https://h/api/jobs/1"})
    parsers = [
        protocol.parse_submit,
        lambda r: protocol.parse_poll(ref, r),
        lambda r: protocol.parse_cancel(ref, r),
    ]
    if protocol.capabilities.find:
        parsers.append(lambda r: protocol.parse_find(REQUEST, r))
    for parse in parsers:
        try:
            snapshot = parse(reply)
        except (TransientReply, JobRejected) as error:
            assert error.status == reply.status  # noqa: PT017 - a typed error is the other allowed end
            continue
        assert_usable(protocol, snapshot)


def assert_usable(protocol, snapshot: Snapshot | None) -> None:
    if snapshot is None:  # a look-up that found nothing
        assert protocol.capabilities.find
        return
    stored = json.dumps(snapshot.to_json(), ensure_ascii=False, allow_nan=False)
    stored.encode()
    assert "\\u0000" not in stored.replace("\\\\", "")
    assert Snapshot.from_json(json.loads(stored)) == snapshot
    assert snapshot.terminal or snapshot.ref is not None
    if snapshot.ref is not None and not snapshot.terminal and not foreign(snapshot.ref):
        assert same_origin(BASE, join(BASE, protocol.poll(snapshot.ref).path))


def foreign(ref: JobRef) -> bool:
    """Only without the URL that was asked may a foreign address get into a reference; joining refuses it."""
    return any("://" in str(v) and not same_origin(BASE, str(v)) for v in ref.extra.values())


@settings(max_examples=100, deadline=None)
@given(reply=REPLIES)
def test_any_card_gives_a_way_on_the_same_origin_or_a_typed_error(reply):
    try:
        protocol = A2AProtocol().parse_card(reply, base=BASE)
    except (TransientReply, JobRejected) as error:
        assert error.status == reply.status  # noqa: PT017 - a typed error is the other allowed end
        return
    assert same_origin(BASE, protocol.endpoint)

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.protocols.base import (
    PENDING,
    TERMINAL,
    HttpReply,
    InvalidRequest,
    JobError,
    JobRef,
    JobRejected,
    JobRequest,
    Phase,
    Snapshot,
    TransientReply,
    Usage,
    latch_cancelled,
)
from airflow_relay.protocols.reading import json_in_text, poll_hint, require_object, usable_id

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


def test_protocols_import_without_airflow_a_client_or_a_database():
    code = (
        "import sys; from airflow_relay.protocols import a2a, http202, openclaw, registry, responses; "
        "print([m for m in ('airflow', 'sqlalchemy', 'httpx', 'requests', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_phase_is_pending_or_terminal():
    assert set(Phase) == PENDING | TERMINAL
    assert not PENDING & TERMINAL
    assert {Phase.QUEUED, Phase.RUNNING} == PENDING


def full_snapshot() -> Snapshot:
    return Snapshot(
        JobRef("responses", "resp/1", {"endpoint": "/x"}),
        Phase.FAILED,
        "failed",
        text="a",
        data={"b": [1]},
        artifacts=[{"name": "c"}],
        error=JobError("code", "message", 500, {"d": 1}),
        usage=Usage(1, 2, 3, 0.5),
        poll_after=1.5,
        progress="almost",
    )


def test_ref_and_snapshot_survive_storage_as_json():
    snapshot = full_snapshot()
    assert Snapshot.from_json(json.loads(json.dumps(snapshot.to_json()))) == snapshot
    assert JobRef.from_json(json.loads(json.dumps(snapshot.ref.to_json()))) == snapshot.ref
    assert hash(snapshot.ref) == hash(JobRef("responses", "resp/1"))


def test_a_snapshot_without_a_reference_survives_storage():
    snapshot = Snapshot(None, Phase.SUCCEEDED, text="done")
    assert Snapshot.from_json(snapshot.to_json()) == snapshot


@pytest.mark.parametrize("stored", [{}, {"id": "x"}, {"protocol": "a2a", "id": 3}])
def test_what_is_no_stored_reference_is_refused(stored):
    with pytest.raises(InvalidRequest, match="protocol"):
        JobRef.from_json(stored)


def test_what_is_no_stored_snapshot_is_refused():
    with pytest.raises(InvalidRequest, match="phase 'gone'"):
        Snapshot.from_json({"phase": "gone"})


def test_a_snapshot_without_output_keeps_error_and_usage():
    small = full_snapshot().without_output()
    assert (small.text, small.data, small.artifacts) == (None, None, [])
    assert small.error is not None
    assert small.usage == Usage(1, 2, 3, 0.5)


def test_a_snapshot_holds_nothing_that_a_database_refuses():
    snapshot = Snapshot(
        None,
        Phase.SUCCEEDED,
        text="a\0b\ud800c",
        data={"k\0": [float("nan"), "\ud800"]},
        artifacts=[{"t": "\0"}],
    )
    assert snapshot.text == "ab?c"
    assert snapshot.data == {"k": [None, "?"]}
    assert snapshot.artifacts == [{"t": ""}]
    json.dumps(snapshot.to_json(), ensure_ascii=False, allow_nan=False).encode()


def test_data_nested_too_deeply_to_be_stored_is_left_out():
    deep: list = []
    for _ in range(500):
        deep = [deep]
    assert Snapshot(None, Phase.SUCCEEDED, data=deep, artifacts=deep).to_json()["data"] is None
    assert Snapshot(None, Phase.SUCCEEDED, artifacts=deep).artifacts == []


def test_once_cancelled_a_job_stays_cancelled_and_keeps_its_bill():
    late = Snapshot(JobRef("responses", "r"), Phase.SUCCEEDED, "completed", text="late", usage=Usage(1, 1, 2))
    latched = latch_cancelled(late, cancel_seen=True)
    assert (latched.phase, latched.text, latched.usage) == (Phase.CANCELLED, None, Usage(1, 1, 2))
    assert latch_cancelled(late, cancel_seen=False) is late


@pytest.mark.parametrize("key", ["", "a" * 257, "a b", "a\r\nX: y", "schlüssel"])
def test_a_key_that_is_no_header_value_is_refused(key):
    with pytest.raises(InvalidRequest, match="idempotency key"):
        JobRequest(input="x", key=key)


def test_input_is_text_or_a_list():
    with pytest.raises(InvalidRequest, match="input must be text or a list, not dict"):
        JobRequest(input={"a": 1}, key="k")  # type: ignore[arg-type]


def test_header_names_compare_without_case_and_repeated_ones_are_joined():
    reply = HttpReply(200, [("Retry-After", "1"), (b"X-A", b"1"), ("x-a", "2")])  # type: ignore[arg-type]
    assert reply.headers["RETRY-AFTER"] == "1"
    assert reply.headers.get("X-A") == "1, 2"
    assert "1" not in repr(reply.headers)


@pytest.mark.parametrize(
    "body", ["", "<html>503</html>", '{"id": "resp_', "nope", b"\xff\xfe\xfa", "[" * 100_000]
)
def test_what_is_no_complete_json_is_no_json(body):
    reply = HttpReply(200, {}, body)
    assert reply.json() is None
    with pytest.raises(TransientReply):
        require_object(reply, "poll")


@pytest.mark.parametrize("body", [b'\xef\xbb\xbf{"a": 1}', '\ufeff{"a": 1}', '{"a": 1}'.encode("utf-16")])
def test_json_is_read_with_a_byte_order_mark(body):
    assert HttpReply(200, {}, body).json() == {"a": 1}


def test_nan_in_a_reply_means_no_value():
    assert HttpReply(200, {}, '{"a": NaN, "b": -Infinity}').json() == {"a": None, "b": None}


def test_a_reply_is_parsed_once():
    reply = HttpReply(200, {}, '{"a": 1}')
    assert reply.json() is reply.json()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"openai-poll-after-ms": "5000", "Retry-After": "9"}, 5.0),
        ({"Retry-After": "Mon, 30 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "Mon, 30 Nov 2026 12:00:30 GMT", "Date": "Mon, 30 Nov 2026 12:00:20 GMT"}, 10.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"openai-poll-after-ms": "x", "Retry-After": "2"}, 2.0),
        ({}, None),
    ],
)
def test_poll_hints_of_every_form(headers, seconds):
    assert poll_hint(HttpReply(200, headers, received=NOW)) == seconds


def test_a_date_without_anything_to_count_from_is_no_hint():
    assert poll_hint(HttpReply(200, {"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"})) is None


@given(st.integers(0, 10**6))
def test_a_date_in_the_future_is_that_many_seconds(seconds):
    moment = (NOW + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert poll_hint(HttpReply(200, {"retry-after": moment}, received=NOW)) == seconds


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1, 2]\n", [1, 2]),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("```\n[1]\n```", [1]),
        ('Here it is:\n```json\n{"a": 1}\n```\nBye.', {"a": 1}),
        ('```json\n{"code": "```py\\nx\\n```"}\n```', {"code": "```py\nx\n```"}),
        ('```json\n{"a": 1}\n```\nor\n```json\n{"a": 2}\n```', None),
        ("```python\nprint()\n```", None),
        ('"text"', None),
        ("42", None),
        ("null", None),
        ('{"a": NaN}', None),
        ('{"a": 1} and more', None),
        ('{"a": ', None),
        ("", None),
        (None, None),
    ],
)
def test_data_is_json_in_the_text_or_nothing(text, data):
    assert json_in_text(text) == data


@pytest.mark.parametrize(
    ("value", "id_"),
    [
        ("resp_1", "resp_1"),
        ("a/b c", "a/b c"),
        (17, "17"),
        ("", None),
        (" ", None),
        ("..", None),
        ("a\n", None),
        ("\ud800", None),
        (True, None),
        (None, None),
        ("x" * 5000, None),
        (10**40, None),
    ],
)
def test_only_ids_that_can_be_stored_and_asked_for_are_ids(value, id_):
    assert usable_id(value) == id_


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}, Usage(3, 4, 7)),
        ({"prompt_tokens": 3, "completion_tokens": 4}, Usage(3, 4, 7)),
        ({"input_tokens": 3.0, "output_tokens": None, "cost": 0.01}, Usage(3, None, None, 0.01)),
        ({"input_tokens": "3"}, None),
        ({"input_tokens": True, "output_tokens": -1}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_in_every_dialect(wire, usage):
    assert Usage.from_json(wire) == usage


def test_errors_keep_what_the_classifier_needs_and_can_be_pickled():
    error = TransientReply(
        "poll", status=429, headers={"retry-after": "3"}, body="slow " * 200, retry_after=3.0, ambiguous=True
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.status, copy.headers, copy.body, copy.retry_after, copy.ambiguous) == (
        429,
        {"retry-after": "3"},
        "slow " * 200,
        3.0,
        True,
    )
    assert len(str(copy)) < 400
    assert TransientReply("poll", status=500, headers={"Set-Cookie": "session=1"}).headers == {}
    refusal = pickle.loads(pickle.dumps(JobRejected("submit", status=401, body="no", code="auth")))
    assert (refusal.code, str(refusal)) == ("auth", "submit (HTTP 401): no")

from __future__ import annotations

import json

import pytest

from airflow_relay.protocols.base import HttpReply, JobRef, JobRequest, Phase, TransientReply
from airflow_relay.protocols.openclaw import OpenClawProtocol

PROTOCOL = OpenClawProtocol()
REF = JobRef("openclaw", "t1")


def task(state: str, text: str = "") -> HttpReply:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    result = {
        "id": "t1",
        "contextId": "k",
        "status": {"state": f"TASK_STATE_{state}"},
        "artifacts": artifacts,
    }
    return HttpReply(200, {}, json.dumps({"jsonrpc": "2.0", "id": "relay", "result": result}))


def test_a_message_id_is_never_sent_twice():
    request = JobRequest(input="x", key="k" * 64)
    ids = {PROTOCOL.submit(request).json["params"]["message"]["messageId"] for _ in range(100)}
    assert len(ids) == 100


def test_it_is_asked_at_its_address_with_the_version():
    call = PROTOCOL.submit(JobRequest(input="x", key="k"))
    assert (call.method, call.path, call.headers["A2A-Version"]) == ("POST", "/a2a/v1", "1.0")
    assert call.json["method"] == "SendMessage"


def test_it_is_polled_no_faster_than_every_five_seconds():
    assert PROTOCOL.min_poll_interval == 5.0
    assert PROTOCOL.parse_poll(REF, task("WORKING")).poll_after == 5.0
    slow = HttpReply(200, {"retry-after": "30"}, task("WORKING").body)
    assert PROTOCOL.parse_poll(REF, slow).poll_after == 30.0


def test_there_is_no_cancel_and_no_look_up():
    assert PROTOCOL.cancel(REF) is None
    assert PROTOCOL.find(JobRequest(input="x", key="k")) is None
    assert not any((PROTOCOL.capabilities.cancel, PROTOCOL.capabilities.find))
    assert not PROTOCOL.capabilities.idempotent_submit


@pytest.mark.parametrize("sign", ["⚠️ ", "⚠ ", "\n⚠️"])
def test_a_failed_model_call_is_reported_as_completed_and_is_a_failure(sign):
    snapshot = PROTOCOL.parse_poll(REF, task("COMPLETED", f"{sign}Authentication failed (HTTP 401)"))
    assert (snapshot.phase, snapshot.error.code) == (Phase.FAILED, "output_guard")
    assert "HTTP 401" in snapshot.error.message


def test_a_warning_sign_inside_the_answer_is_an_answer():
    snapshot = PROTOCOL.parse_poll(REF, task("COMPLETED", "Mind the ⚠️ sign"))
    assert (snapshot.phase, snapshot.text) == (Phase.SUCCEEDED, "Mind the ⚠️ sign")


def test_its_rate_limit_comes_as_200_and_is_transient_and_nothing_was_started():
    body = {"jsonrpc": "2.0", "id": "relay", "error": {"code": -32000, "message": "Peer is rate limited"}}
    limited = HttpReply(200, {}, json.dumps(body))
    with pytest.raises(TransientReply, match="Peer is rate limited"):
        PROTOCOL.parse_poll(REF, limited)
    with pytest.raises(TransientReply) as error:
        PROTOCOL.parse_submit(limited)
    assert not error.value.ambiguous


def test_slash_text_is_rejected():
    assert PROTOCOL.parse_poll(REF, task("REJECTED")).phase is Phase.REFUSED

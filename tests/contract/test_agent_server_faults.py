"""One test for each fault switch of the embedded agent server: what a client sees when it is on."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from tests.support.agent_server import AgentServerProcess

from airflow_relay.local_agent.faults import FaultKind

PAYLOAD = {"draft": "# Pools\n\nA pool has a fixed number of slots [1]."}
WORKING = {"queued", "in_progress"}


@pytest.fixture(scope="module")
def shared():
    with AgentServerProcess() as running:
        yield running


@pytest.fixture
def server(shared):
    yield shared
    shared.clear_faults()


def post(server, fault="", *, key=None, timeout=30.0, background=True):
    body = {"model": "extractive/publish", "input": json.dumps(PAYLOAD), "background": background}
    if fault:
        body["metadata"] = {"fault": fault}
    headers = {"Idempotency-Key": key} if key else {}
    with server.client() as client:
        return client.post("/v1/responses", json=body, headers=headers, timeout=timeout)


def submit(server, fault):
    return post(server, fault).raise_for_status().json()["id"]


def get(server, job_id):
    with server.client() as client:
        return client.get(f"/v1/responses/{job_id}")


def cancel(server, job_id):
    with server.client() as client:
        return client.post(f"/v1/responses/{job_id}/cancel")


def end_of(server, fault):
    return server.wait_for(submit(server, fault))


def created(server):
    return server.stats()["jobs_created"]


def when(server, job_id, status):
    """Poll until the admin list, which no fault touches, shows the status."""
    for _ in range(300):
        if next(job for job in server.jobs() if job["id"] == job_id)["status"] == status:
            return
        time.sleep(0.05)
    raise AssertionError(f"{job_id} did not become {status}")


# --- before and after the job is created ---------------------------------------------------------------


def test_http_status_before_the_job_is_created(server):
    before = created(server)
    server.set_fault("http_status", point="submit", status=429, retry_after="7", times=2)
    replies = [post(server) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [429, 429, 200]
    assert replies[0].headers["retry-after"] == "7"
    assert replies[0].json()["error"]["code"] == "rate_limit_exceeded"
    assert created(server) - before == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_http_status_after_the_job_is_created(server, status):
    before = created(server)
    fault = f"http_status:point=submitted,status={status},times=1"
    key = f"ambiguous-{status}"
    assert post(server, fault, key=key).status_code == status
    second = post(server, fault, key=key)
    assert second.status_code == 200
    assert created(server) - before == 1
    assert next(job["id"] for job in server.jobs() if job["idempotency_key"] == key) == second.json()["id"]


def test_close_after_the_job_is_created(server):
    before = created(server)
    with pytest.raises(httpx.RemoteProtocolError):
        post(server, "close:point=submitted", key="cut-off")
    assert created(server) - before == 1


def test_close_before_the_job_is_created(server):
    before = created(server)
    with pytest.raises(httpx.RemoteProtocolError):
        post(server, "close:point=submit")
    assert created(server) == before


def test_hang_after_the_job_is_created(server):
    before = created(server)
    with pytest.raises(httpx.ReadTimeout):
        post(server, "hang:point=submitted,seconds=600", timeout=3.0)
    assert created(server) - before == 1


def test_hang_ends_with_a_closed_connection(server):
    with pytest.raises(httpx.RemoteProtocolError):
        post(server, "hang:point=submit,seconds=0.1")


def test_html_and_empty_body_at_submit(server):
    server.set_fault("html", point="submit", times=1)
    server.set_fault("empty_body", point="submit", times=1)
    html, empty = post(server), post(server)
    assert html.status_code == 200
    assert html.headers["content-type"].startswith("text/html")
    assert (empty.status_code, empty.content) == (200, b"")


# --- polls ---------------------------------------------------------------------------------------------


def test_429_for_some_polls(server):
    job_id = submit(server, "http_status:point=poll,status=429,retry_after=3,times=2")
    replies = [get(server, job_id) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [429, 429, 200]
    assert replies[0].headers["retry-after"] == "3"


def test_html_for_one_poll(server):
    job_id = submit(server, "html:times=1")
    assert "<html>" in get(server, job_id).text
    assert get(server, job_id).json()["id"] == job_id


def test_empty_body_for_one_poll(server):
    job_id = submit(server, "empty_body:times=1")
    assert get(server, job_id).content == b""
    assert get(server, job_id).json()["id"] == job_id


def test_close_for_one_poll(server):
    job_id = submit(server, "close:times=1")
    with pytest.raises(httpx.RemoteProtocolError):
        get(server, job_id)
    assert get(server, job_id).json()["id"] == job_id


def test_a_fault_of_the_server_strikes_only_the_job_it_names(server):
    struck, spared = submit(server, ""), submit(server, "")
    server.set_fault("http_status", point="poll", status=503, where={"id": struck})
    assert get(server, struck).status_code == 503
    assert get(server, spared).status_code == 200


def test_lost(server):
    job_id = submit(server, "lost")
    assert get(server, job_id).status_code == 404
    assert cancel(server, job_id).status_code == 404


# --- how jobs go and end -------------------------------------------------------------------------------


def test_unknown_status_until_the_job_ends(server):
    job_id = submit(server, "unknown_status:text=pondering;slow:seconds=600")
    assert get(server, job_id).json()["status"] == "pondering"
    assert cancel(server, job_id).json()["status"] == "cancelled"


def test_slow(server):
    job_id = submit(server, "slow:seconds=600")
    when(server, job_id, "in_progress")
    assert get(server, job_id).json()["status"] == "in_progress"


def test_stuck_queued_until_it_is_cancelled(server):
    job_id = submit(server, "stuck_queued")
    later = server.wait_for(submit(server, ""))
    assert later["status"] == "completed"
    assert get(server, job_id).json()["status"] == "queued"
    assert cancel(server, job_id).json()["status"] == "cancelled"


def test_failed(server):
    end = end_of(server, "failed:code=rate_limit_exceeded,message=upstream is busy")
    assert (end["status"], end["output"]) == ("failed", [])
    assert end["error"] == {"code": "rate_limit_exceeded", "message": "upstream is busy"}


def test_failed_without_error(server):
    end = end_of(server, "failed_without_error")
    assert (end["status"], end["error"], end["usage"]) == ("failed", None, None)


def test_failed_as_500(server):
    job_id = submit(server, "failed_as_500")
    when(server, job_id, "failed")
    reply = get(server, job_id)
    assert reply.status_code == 500
    assert (reply.json()["id"], reply.json()["status"]) == (job_id, "failed")
    assert reply.json()["error"]["code"] == "server_error"


def test_completed_empty(server):
    end = end_of(server, "completed_empty")
    assert (end["status"], end["output"], end["usage"]) == ("completed", [], None)


def test_error_text(server):
    end = end_of(server, "error_text")
    assert end["status"] == "completed"
    assert end["output"][0]["content"][0]["text"].startswith("⚠️")


def test_refusal(server):
    end = end_of(server, "refusal:text=No.")
    assert end["status"] == "completed"
    assert end["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_function_call_only(server):
    end = end_of(server, "function_call_only")
    assert end["status"] == "completed"
    assert [item["type"] for item in end["output"]] == ["function_call"]


def test_incomplete(server):
    end = end_of(server, "incomplete:text=content_filter")
    assert end["status"] == "incomplete"
    assert end["incomplete_details"] == {"reason": "content_filter"}


def test_huge_reply(server):
    job_id = submit(server, "huge_reply")
    when(server, job_id, "completed")
    assert len(get(server, job_id).content) >= 50_000_000 - 10


# --- cancels -------------------------------------------------------------------------------------------


def test_cancel_flap(server):
    job_id = submit(server, "cancel_flap;slow:seconds=600")
    assert cancel(server, job_id).json()["status"] == "cancelled"
    assert [get(server, job_id).json()["status"] for _ in range(3)] == ["cancelled", "completed", "completed"]


def test_slow_cancel(server):
    job_id = submit(server, "slow_cancel:seconds=600;slow:seconds=600")
    with server.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"/v1/responses/{job_id}/cancel", timeout=1.0)
    assert get(server, job_id).json()["status"] in WORKING


@pytest.mark.parametrize("status", [409, 400])
def test_cancel_rejected(server, status):
    job_id = submit(server, f"cancel_rejected:status={status};slow:seconds=600")
    reply = cancel(server, job_id)
    assert reply.status_code == status
    assert job_id in reply.json()["error"]["message"]
    assert get(server, job_id).json()["status"] in WORKING


def test_a_transport_fault_at_cancel(server):
    job_id = submit(server, "http_status:point=cancel,status=502,times=1;slow:seconds=600")
    assert cancel(server, job_id).status_code == 502
    assert cancel(server, job_id).json()["status"] == "cancelled"


# --- the server as a whole -----------------------------------------------------------------------------


def test_background_rejected(server):
    before = created(server)
    reply = post(server, "background_rejected")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "background"
    assert created(server) == before
    assert post(server, "background_rejected", background=False).status_code == 200


def test_background_ignored(server):
    server.set_fault("background_ignored", times=1)
    reply = post(server).json()
    assert reply["status"] == "completed"
    assert reply["output"]


def test_capacity(server):
    active = server.stats()["active"]
    server.set_fault("capacity", capacity=active + 2, retry_after="0.5")
    running = [submit(server, "slow:seconds=600") for _ in range(2)]
    refused = post(server)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "0.5"
    cancel(server, running[0])
    assert post(server).status_code == 200


def test_ignore_idempotency_key(server):
    server.set_fault("ignore_idempotency_key")
    assert post(server, key="ignored").json()["id"] != post(server, key="ignored").json()["id"]


# --- the switches themselves ---------------------------------------------------------------------------


def test_a_wrong_switch_in_a_request_is_400(server):
    reply = post(server, "no_such_thing")
    assert reply.status_code == 400
    assert "http_status" in reply.json()["error"]["message"]


def test_a_wrong_switch_at_the_admin_route_is_400(server):
    with pytest.raises(RuntimeError, match=r"400.*colour"):
        server.set_fault("html", colour="red")


def test_switches_from_the_command_line_are_listed_and_cleared():
    with AgentServerProcess(extra_args=("--fault", "lost", "--fault", "slow:seconds=2")) as server:
        assert [fault["kind"] for fault in server.faults()] == ["lost", "slow"]
        server.clear_faults()
        assert server.faults() == []


def test_strikes_are_counted(server):
    before = server.stats()["faults"].get("empty_body", 0)
    get(server, submit(server, "empty_body:times=1"))
    assert server.stats()["faults"]["empty_body"] == before + 1


def test_every_kind_of_fault_has_its_test_here():
    tests = [name.removeprefix("test_") for name in globals() if name.startswith("test_")]
    untested = [
        kind.value
        for kind in FaultKind
        if not any(name == kind.value or name.startswith(f"{kind.value}_") for name in tests)
    ]
    assert untested == []

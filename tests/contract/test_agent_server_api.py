"""What the embedded agent server promises beyond the official client: keys, restarts, tokens, logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import httpx
import psutil
import pytest
from tests.support.agent_server import AgentServerProcess

from polling import wait_until

PAYLOAD = {"draft": "# Pools\n\nA pool has a fixed number of slots [1]."}


@pytest.fixture(scope="module")
def server():
    with AgentServerProcess() as running:
        yield running


def body(**changes):
    return {"model": "extractive/publish", "input": json.dumps(PAYLOAD), "background": True, **changes}


def post(server, key=None, **changes):
    headers = {"Idempotency-Key": key} if key else {}
    with server.client() as client:
        return client.post("/v1/responses", json=body(**changes), headers=headers)


def test_the_same_key_and_payload_give_the_same_job(server):
    before = server.stats()
    first = post(server, "one-job").json()
    second = post(server, '"one-job"').json()
    after = server.stats()
    assert first["id"] == second["id"]
    assert after["jobs_created"] - before["jobs_created"] == 1
    assert after["replays"] - before["replays"] == 1


def test_the_same_key_with_another_payload_is_422(server):
    post(server, "reused").raise_for_status()
    reply = post(server, "reused", metadata={"other": "payload"})
    assert reply.status_code == 422
    assert reply.json()["error"]["code"] == "idempotency_key_reused"


def test_without_a_key_each_post_is_a_job(server):
    assert post(server).json()["id"] != post(server).json()["id"]


def test_the_same_input_gives_the_same_output(server):
    ends = [server.wait_for(post(server).json()["id"]) for _ in range(2)]
    texts = {end["output"][0]["content"][0]["text"] for end in ends}
    assert len(texts) == 1


@pytest.mark.parametrize("content", [b"no json", b"[]", b"", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_400(server, content):
    with server.client() as client:
        reply = client.post("/v1/responses", content=content)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_body_beyond_the_limit_is_413(server):
    with server.client() as client:
        reply = client.post("/v1/responses", content=b" " * (64 * 1024 * 1024 + 1))
    assert reply.status_code == 413


def test_half_a_surrogate_in_the_input_breaks_nothing(server):
    text = '{"draft": "# Odd \\ud800 title\\n\\nA pool has slots."}'
    with server.client() as client:
        reply = client.post("/v1/responses", content=json.dumps(body(input=text)).encode())
        end = server.wait_for(reply.raise_for_status().json()["id"])
    assert end["status"] == "completed"


def test_health_needs_no_token_and_the_api_does():
    with AgentServerProcess(token="t0ken-value") as server, httpx.Client(trust_env=False) as anyone:
        assert anyone.get(f"{server.url}/health").json()["status"] == "ok"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic t0ken-value"}):
            reply = anyone.post(f"{server.url}/v1/responses", json=body(), headers=headers)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"
            assert reply.json()["error"]["code"] == "invalid_api_key"
        end = server.wait_for(server.submit("publish", PAYLOAD)["id"])
        assert end["status"] == "completed"
        assert anyone.get(f"{server.url}/admin/stats").status_code == 401
        command_line = subprocess.run(
            ["ps", "-o", "args=", "-p", str(server.process.pid)], capture_output=True, text=True, check=True
        )
        assert "t0ken-value" not in command_line.stdout
        log = server.log()
    assert "t0ken-value" not in log
    assert "fixed number of slots" not in log


def test_the_log_is_one_json_object_a_line_with_each_change_of_state(server):
    job_id = server.submit("publish", PAYLOAD)["id"]
    server.wait_for(job_id)
    lines = [line for line in server.log_lines() if line.get("id") == job_id]
    assert [line["status"] for line in lines] == ["queued", "completed"]
    assert lines[-1]["total_tokens"] > 0
    assert all({"time", "level", "event"} <= set(line) for line in lines)


def test_ctrl_c_ends_it_cleanly_with_jobs_in_work():
    with AgentServerProcess() as server:
        server.submit("publish", PAYLOAD, metadata={"fault": "slow:seconds=600"})
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.log()


def test_the_server_of_a_test_ends_with_the_process_that_started_it():
    program = """
        import sys
        from tests.support.agent_server import AgentServerProcess
        with AgentServerProcess() as server:
            print(server.process.pid, flush=True)
            sys.stdin.read()
    """
    starter = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    server = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    wait_until(lambda: not server.is_running(), what="the agent server to end", timeout=30)


def test_admin_does_not_exist_without_allow_faults(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_relay.local_agent", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().rsplit(" ", 1)[1].strip()
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"{url}/admin/stats").status_code == 404
            faulty = client.post(f"{url}/v1/responses", json=body(metadata={"fault": "background_rejected"}))
            assert faulty.status_code == 200
    finally:
        process.terminate()
        process.wait(15)
        process.stdout.close()


def test_a_restarted_server_with_a_state_file_knows_finished_and_unfinished_jobs(tmp_path):
    with AgentServerProcess(state=tmp_path / "jobs of the agent.db") as server:
        done = server.wait_for(server.submit("publish", PAYLOAD, idempotency_key="done")["id"])
        waiting = server.submit(
            "publish", PAYLOAD, metadata={"fault": "slow:seconds=1"}, idempotency_key="late"
        )
        server.restart()
        with server.client() as client:
            assert client.get(f"/v1/responses/{done['id']}").json() == done
        assert server.submit("publish", PAYLOAD, idempotency_key="done")["id"] == done["id"]
        end = server.wait_for(waiting["id"])
        assert end["status"] == "completed"
        assert server.stats()["jobs_created"] == 2


def test_a_restarted_server_without_a_state_file_has_lost_its_jobs():
    with AgentServerProcess() as server:
        job_id = server.submit("publish", PAYLOAD)["id"]
        server.restart()
        with server.client() as client:
            assert client.get(f"/v1/responses/{job_id}").status_code == 404


def test_a_cancelled_job_stays_cancelled_over_a_restart(tmp_path):
    with AgentServerProcess(state=tmp_path / "jobs.db") as server:
        job_id = server.submit("publish", PAYLOAD, metadata={"fault": "slow:seconds=600"})["id"]
        with server.client() as client:
            client.post(f"/v1/responses/{job_id}/cancel").raise_for_status()
            server.restart()
            assert client.get(f"/v1/responses/{job_id}").json()["status"] == "cancelled"


def test_many_jobs_in_flight_are_counted_and_all_end():
    with AgentServerProcess(latency="0.5:1") as server:
        ids = [server.submit("publish", PAYLOAD, metadata={"n": str(n)})["id"] for n in range(40)]
        assert {server.wait_for(job_id)["status"] for job_id in ids} == {"completed"}
        stats = server.stats()
    assert stats["jobs_created"] == stats["posts"] == 40
    assert stats["by_job"]["publish"]["created"] == 40
    assert 1 < stats["max_active"] <= 40
    assert stats["active"] == 0

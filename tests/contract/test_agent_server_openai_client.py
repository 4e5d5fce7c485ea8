"""The official ``openai`` client against the embedded agent server, over the wire."""

from __future__ import annotations

import json
import time

import httpx
import openai
import pytest
from tests.support.agent_server import AgentServerProcess
from tests.support.agent_texts import QUESTION, settings_sources

TOKEN = "a-token-for-this-test"


@pytest.fixture(scope="module")
def server():
    with AgentServerProcess(token=TOKEN) as running:
        yield running


@pytest.fixture
def client(server):
    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(
            base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0, http_client=http, timeout=30
        ) as api,
    ):
        yield api


def research_input():
    return json.dumps({"question": QUESTION, "sources": list(settings_sources())})


def finished(client, response_id):
    for _ in range(300):
        response = client.responses.retrieve(response_id)
        if response.status not in {"queued", "in_progress"}:
            return response
        time.sleep(0.05)
    raise AssertionError("the job did not end")


def test_create_in_background_and_retrieve(client):
    created = client.responses.create(
        model="extractive",
        input=research_input(),
        background=True,
        store=True,
        metadata={"job": "research", "item": "limits"},
    )
    assert created.status == "queued"
    assert created.background is True
    assert created.output_text == ""
    done = finished(client, created.id)
    assert done.status == "completed"
    assert done.error is None
    assert done.metadata == {"job": "research", "item": "limits"}
    data = json.loads(done.output_text)
    assert "core.parallelism" in {passage["source_id"] for passage in data["passages"]}
    assert done.usage.input_tokens > 1000
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens


def test_foreground_returns_the_finished_job(client):
    response = client.responses.create(model="extractive/research", input=research_input())
    assert response.status == "completed"
    assert json.loads(response.output_text)["passages"]
    assert client.responses.retrieve(response.id).output_text == response.output_text


def test_foreground_without_store_is_not_kept(client):
    response = client.responses.create(model="extractive/research", input=research_input(), store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_cancel_twice_is_the_same(client):
    created = client.responses.create(
        model="extractive/research",
        input=research_input(),
        background=True,
        metadata={"fault": "slow:seconds=600"},
    )
    first = client.responses.cancel(created.id)
    second = client.responses.cancel(created.id)
    assert first.status == second.status == "cancelled"
    assert client.responses.retrieve(created.id).status == "cancelled"


def test_cancel_of_a_finished_job_returns_it_unchanged(client):
    created = client.responses.create(model="extractive/research", input=research_input(), background=True)
    done = finished(client, created.id)
    assert client.responses.cancel(created.id).output_text == done.output_text


def test_a_foreground_job_cannot_be_cancelled(client):
    response = client.responses.create(model="extractive/research", input=research_input())
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(response.id)


def test_delete_forgets_the_job(client):
    created = client.responses.create(model="extractive/research", input=research_input(), background=True)
    client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(created.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(created.id)


def test_delete_of_a_running_job_stops_it(client, server):
    created = client.responses.create(
        model="extractive/research",
        input=research_input(),
        background=True,
        metadata={"fault": "stuck_queued"},
    )
    before = server.stats()["active"]
    client.responses.delete(created.id)
    assert server.stats()["active"] == before - 1


def test_errors_arrive_as_the_client_s_own_exceptions(client, server):
    with pytest.raises(openai.BadRequestError) as unknown_model:
        client.responses.create(model="gpt-9", input="x")
    assert unknown_model.value.code == "model_not_found"
    assert "extractive" in unknown_model.value.message
    with pytest.raises(openai.BadRequestError) as unknown_job:
        client.responses.create(model="extractive/paint", input="{}")
    assert unknown_job.value.param == "model"
    with pytest.raises(openai.BadRequestError) as bad_input:
        client.responses.create(model="extractive/write", input="no JSON")
    assert bad_input.value.param == "input"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_unknown")
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.responses.retrieve("resp_unknown")


def test_input_that_turns_out_to_be_no_use_ends_failed_with_the_reason(client):
    payload = {"question": "What?", "passages": [{"n": 1, "quote": "nothing to quote"}]}
    created = client.responses.create(model="extractive/write", input=json.dumps(payload), background=True)
    done = finished(client, created.id)
    assert done.status == "failed"
    assert done.error.code == "invalid_prompt"
    assert "no whole sentence" in done.error.message


def test_a_token_limit_ends_incomplete(client):
    response = client.responses.create(
        model="extractive/research", input=research_input(), max_output_tokens=20
    )
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 20


def test_the_client_s_own_retries_ride_over_a_429(client, server):
    server.set_fault("http_status", point="submit", status=429, retry_after="0", times=1)
    response = client.with_options(max_retries=2).responses.create(
        model="extractive/research", input=research_input()
    )
    assert response.status == "completed"
    assert server.stats()["rejected_429"] == 1

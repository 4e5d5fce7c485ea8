"""The protocol against the A2A SDK's own server, in this process, without a socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from google.protobuf.struct_pb2 import Struct, Value
from starlette.applications import Starlette

from airflow_relay.protocols.a2a import A2AProtocol
from airflow_relay.protocols.base import HttpReply, JobRef, JobRejected, JobRequest, Phase
from airflow_relay.protocols.urls import join

BASE = "http://agent"
WAYS = [("JSONRPC", "1.0", "/a2a/v1"), ("HTTP+JSON", "1.0", "/rest"), ("JSONRPC", "0.3", "/a2a/v1")]


class Script(AgentExecutor):
    """Does what the prompt says."""

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if text == "direct":
            await event_queue.enqueue_event(new_text_message("direct reply"))
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work(new_text_message("thinking"))
        await self.act(text, updater)

    async def act(self, text, updater):
        if text == "hang":
            await asyncio.Event().wait()
        if text == "crash":
            raise RuntimeError("crash")
        ends = {"fail": updater.failed, "reject": updater.reject, "ask": updater.requires_input}
        if text in ends:
            await ends[text](new_text_message(f"because of {text}"))
            return
        if text != "empty":
            data = Struct()
            data.update({"label": "ok", "score": 3})
            await updater.add_artifact([Part(text=f"answer to: {text}")], name="answer")
            await updater.add_artifact([Part(data=Value(struct_value=data))], name="data")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def application(interfaces) -> Starlette:
    card = AgentCard(
        name="script",
        description="acts",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{BASE}{path}", protocol_binding=binding, protocol_version=version)
            for binding, version, path in interfaces
        ],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
    )
    handler = DefaultRequestHandler(Script(), InMemoryTaskStore(), card)
    return Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/a2a/v1", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
    )


@asynccontextmanager
async def talking(way=WAYS[0]):
    """A function that sends one call, and the protocol as the agent's card says."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application([way]))) as client:

        async def send(call) -> HttpReply:
            got = await client.request(
                call.method, join(BASE, call.path), headers=dict(call.headers), json=call.json
            )
            return HttpReply(got.status_code, got.headers, got.content, str(got.url))

        plain = A2AProtocol()
        yield send, plain.parse_card(await send(plain.discover()))


async def until_terminal(send, protocol, ref):
    async def poll():
        snapshot = protocol.parse_poll(ref, await send(protocol.poll(ref)))
        while not snapshot.terminal:
            await asyncio.sleep(0.01)
            snapshot = protocol.parse_poll(ref, await send(protocol.poll(ref)))
        return snapshot

    return await asyncio.wait_for(poll(), timeout=60)


async def run(text, way):
    async with talking(way) as (send, protocol):
        submitted = protocol.parse_submit(await send(protocol.submit(JobRequest(input=text, key="key-1"))))
        assert not submitted.terminal
        return await until_terminal(send, protocol, submitted.ref)


@pytest.mark.parametrize("way", WAYS)
async def test_the_card_says_how_to_reach_the_agent(way):
    async with talking(way) as (_, protocol):
        assert (protocol.binding, protocol.version, protocol.endpoint) == (way[0], way[1], f"{BASE}{way[2]}")


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_from_submit_to_output(way):
    done = await run("ok", way)
    assert (done.phase, done.text) == (Phase.SUCCEEDED, "answer to: ok")
    assert done.data == {"label": "ok", "score": 3}
    assert [a["name"] for a in done.artifacts] == ["answer", "data"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "phase", "code"),
    [
        ("fail", Phase.FAILED, "failed"),
        ("reject", Phase.REFUSED, "rejected"),
        ("ask", Phase.BLOCKED, "input_required"),
        ("empty", Phase.FAILED, "empty_output"),
    ],
)
async def test_an_outcome_that_is_no_success(way, text, phase, code):
    done = await run(text, way)
    assert (done.phase, done.error.code) == (phase, code)


async def test_a_crashed_executor_fails_without_a_message():
    done = await run("crash", WAYS[0])
    assert done.phase is Phase.FAILED
    assert done.error.message


@pytest.mark.parametrize("way", WAYS)
async def test_a_direct_reply_ends_the_job_at_submit(way):
    async with talking(way) as (send, protocol):
        done = protocol.parse_submit(await send(protocol.submit(JobRequest(input="direct", key="k"))))
    assert (done.ref, done.phase, done.text) == (None, Phase.SUCCEEDED, "direct reply")


@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_twice(way):
    async with talking(way) as (send, protocol):
        ref = protocol.parse_submit(await send(protocol.submit(JobRequest(input="hang", key="k")))).ref
        first = protocol.parse_cancel(ref, await send(protocol.cancel(ref)))
        second = protocol.parse_cancel(ref, await send(protocol.cancel(ref)))
        end = await until_terminal(send, protocol, ref)
    assert first.phase in {Phase.CANCELLED, Phase.RUNNING}
    assert (second.phase, second.raw_status, second.poll_after) == (Phase.RUNNING, "not_cancelable", 0.0)
    assert end.phase is Phase.CANCELLED


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_that_the_server_does_not_know_is_lost(way):
    async with talking(way) as (send, protocol):
        ref = JobRef("a2a", "11111111-1111-1111-1111-111111111111")
        assert protocol.parse_poll(ref, await send(protocol.poll(ref))).phase is Phase.LOST


@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_job_whose_acknowledgement_was_lost_is_found_by_its_key(way):
    request, other = JobRequest(input="ok", key="key-1"), JobRequest(input="ok", key="key-2")
    async with talking(way) as (send, protocol):
        submitted = protocol.parse_submit(await send(protocol.submit(request)))
        found = protocol.parse_find(request, await send(protocol.find(request)))
        assert protocol.parse_find(other, await send(protocol.find(other))) is None
        assert (found.ref, found.poll_after) == (submitted.ref, 0.0)
        assert (await until_terminal(send, protocol, found.ref)).text == "answer to: ok"


async def test_a_1_0_method_under_the_old_version_is_refused():
    async with talking() as (send, protocol):
        call = protocol.submit(JobRequest(input="ok", key="k"))
        call.headers.pop("A2A-Version")
        with pytest.raises(JobRejected):
            protocol.parse_submit(await send(call))

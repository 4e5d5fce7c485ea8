"""An agent behind the A2A SDK's own server, as a process: ``python a2a_server.py PORT``.

It does what the prompt says (``ok``, ``slow``, ``hang``, ``fail``, ``reject``, ``ask``, ``empty``, ``crash``,
``direct``) and counts what it was asked to do (``GET /stats``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import httpx
import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from typing_extensions import Self

from processes import free_port

PATHS = {"JSONRPC": "/a2a/v1", "HTTP+JSON": "/rest"}


class Script(AgentExecutor):
    """Does what the prompt says."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def execute(self, context: Any, event_queue: Any) -> None:
        text = context.get_user_input()
        self.counts["executed"] += 1
        if text == "direct":
            await event_queue.enqueue_event(new_text_message("direct reply"))
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work(new_text_message("thinking"))
        if text == "hang":
            await asyncio.Event().wait()
        if text == "slow":
            await asyncio.sleep(1)
        if text == "crash":
            raise RuntimeError("crash")
        ends = {"fail": updater.failed, "reject": updater.reject, "ask": updater.requires_input}
        if text in ends:
            await ends[text](new_text_message(f"because of {text}"))
            return
        if text != "empty":
            await updater.add_artifact([Part(text=f"answer to: {text}")], name="answer")
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        self.counts["cancelled"] += 1
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def application(base: str, binding: str, version: str) -> Starlette:
    """The SDK's server for one binding and version."""
    script = Script()
    card = AgentCard(
        name="script",
        description="acts",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{base}{PATHS[binding]}", protocol_binding=binding, protocol_version=version)
        ],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
    )
    handler = DefaultRequestHandler(script, InMemoryTaskStore(), card)

    async def stats(_: Any) -> JSONResponse:
        return JSONResponse({name: script.counts[name] for name in ("executed", "cancelled")})

    return Starlette(
        routes=[
            Route("/stats", stats),
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, PATHS["JSONRPC"], enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix=PATHS["HTTP+JSON"]),
        ]
    )


class A2AServerProcess:
    """The server in a process of its own; a context manager."""

    def __init__(self, binding: str = "JSONRPC", version: str = "1.0") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, __file__, str(self.port), binding, version]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        scripts = os.path.join(os.path.dirname(__file__), "..", "..", "scripts")  # noqa: PTH118, PTH120
        env = {**os.environ, "PYTHONPATH": scripts}
        self._process = subprocess.Popen(
            self._command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready" not in line:
            self.__exit__()
            raise RuntimeError("the A2A server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(15)
            if process.stdout is not None:
                process.stdout.close()

    def stats(self) -> Any:
        with httpx.Client(trust_env=False) as client:
            return client.get(f"{self.url}/stats").json()


class _Announcing(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        sys.stdout.write("ready\n")
        sys.stdout.flush()


def main(port: str, binding: str, version: str) -> None:
    app = application(f"http://127.0.0.1:{port}", binding, version)
    _Announcing(uvicorn.Config(app, host="127.0.0.1", port=int(port), log_level="warning")).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

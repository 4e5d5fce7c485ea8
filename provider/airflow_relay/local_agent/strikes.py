"""Faults carried out: replies that a well-behaved server would not give."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from airflow_relay.local_agent.faults import Fault, FaultKind, bound, take_bound
from airflow_relay.local_agent.jobs import JobStatus
from airflow_relay.local_agent.wire import error_body, message_item, response_object, text_part, usage_object

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from airflow_relay.local_agent.jobs import Job

__all__ = ["flap", "hold", "take_bound", "transport_reply", "view"]

ABORT_EXTENSION = "relay.abort"
"""In the ASGI scope's extensions: a function that closes the connection at once (see ``server``)."""

_HTML = """<!DOCTYPE html>
<html><head><title>Please wait</title></head>
<body><h1>Checking your browser before accessing the service</h1></body></html>
"""


async def transport_reply(fault: Fault, request: Request) -> Response:
    """The reply of a transport fault."""
    if fault.kind is FaultKind.HTTP_STATUS:
        return _status_reply(fault)
    if fault.kind is FaultKind.HTML:
        return Response(_HTML, media_type="text/html")
    if fault.kind is FaultKind.EMPTY_BODY:
        return Response(b"", media_type="application/json")
    if fault.kind is FaultKind.HANG:
        await _wait_for_disconnect(request, seconds=fault.effective_seconds)
    return _Abort()


async def hold(seconds: float) -> None:
    """Let time pass before an answer."""
    await asyncio.sleep(seconds)


def view(job: Job) -> dict[str, Any]:
    """The response object as a client is to see it now."""
    shown = response_object(job)
    odd = bound(job.faults, FaultKind.UNKNOWN_STATUS)
    if odd and not job.is_terminal:
        shown["status"] = odd.text or "thinking"
    huge = bound(job.faults, FaultKind.HUGE_REPLY)
    if huge and job.status is JobStatus.COMPLETED:
        text = json.dumps({"filler": "relay " * (huge.size // 6)})
        shown["output"] = [message_item(job.id, [text_part(text)])]
    return shown


def flap(job: Job) -> None:
    """After a cancel, the first poll still says cancelled; from the second on the job is completed."""
    fault = bound(job.faults, FaultKind.CANCEL_FLAP)
    if fault is None or job.status is not JobStatus.CANCELLED:
        return
    if fault.times is None:
        for record in job.faults:
            if record["kind"] == FaultKind.CANCEL_FLAP.value:
                record["times"] = 1
        return
    job.status = JobStatus.COMPLETED
    job.output = [message_item(job.id, [text_part('{"late": true}')])]
    job.usage = usage_object(1, 5)


def _status_reply(fault: Fault) -> Response:
    status = fault.effective_status
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else None
    if status == 429:
        body = error_body(
            "Rate limit reached for requests.", error_type="requests", code="rate_limit_exceeded"
        )
    elif status in (502, 503, 504):
        return Response(
            f"<html><body><h1>{status}</h1></body></html>", status, headers, media_type="text/html"
        )
    elif status == 404:
        body = error_body("Response not found.", param="response_id", code="not_found")
    else:
        body = error_body(fault.message, error_type="server_error", code=fault.code)
    return Response(json.dumps(body), status, headers, media_type="application/json")


async def _wait_for_disconnect(request: Request, *, seconds: float) -> None:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    waiting = asyncio.ensure_future(gone())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()


class _Abort(Response):
    """No reply: the connection is closed under the client."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        scope["extensions"][ABORT_EXTENSION]()
        while (await receive())["type"] != "http.disconnect":
            continue

"""One asynchronous HTTP client for all triggers of a process and connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

import httpx

from airflow_relay.clock import utcnow
from airflow_relay.hooks.agent import AgentHook, AgentSettings
from airflow_relay.protocols.base import HttpCall, HttpReply

MAX_BODY: Final = 256 * 1024
"""Bytes of a reply that a trigger reads. A larger one is a finished job's, and for the worker to fetch."""
MAX_CONNECTIONS: Final = 100
KEPT_CONNECTIONS: Final = 20
"""Connections that stay open between polls. The pool looks at each of them for each request."""
POLL_TIMEOUT: Final = 30.0
"""Seconds of silence that end a poll: a server that hangs must not hold connections for minutes."""
REFRESH_AFTER: Final = 300.0
"""Seconds after which the connection is looked up anew: passwords and addresses change under long jobs."""


class ReplyTooLargeError(Exception):
    """The reply is larger than a trigger reads."""


class SharedAgentClient:
    """Sends the calls of all triggers that use one connection.

    :param conn_id: looked up without blocking the event loop.
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self.users = 0
        self._lock = asyncio.Lock()
        # The pool has a queue of its own, but it looks at all that wait for each connection that comes free.
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        self._made: _Made | None = None

    async def send(self, call: HttpCall) -> HttpReply:
        """Send one call and return its reply.

        :raises ReplyTooLargeError: the body is larger than :data:`MAX_BODY`; the rest was not downloaded.
        :raises httpx.TransportError: there is no reply.
        """
        async with self._turns:
            made = await self._current()
            made.in_flight += 1
            try:
                return await _exchange(made, call)
            finally:
                made.in_flight -= 1
                if made.retired and not made.in_flight:
                    await made.http.aclose()

    async def close(self) -> None:
        """Close the connections."""
        made, self._made = self._made, None
        if made is not None:
            await made.http.aclose()

    async def settings(self) -> AgentSettings:
        """The connection as it is now."""
        return (await self._current()).settings

    async def _current(self) -> _Made:
        made = self._made
        if made is not None and monotonic() - made.looked_up < REFRESH_AFTER:
            return made
        async with self._lock:
            made = self._made
            if made is not None and monotonic() - made.looked_up < REFRESH_AFTER:
                return made
            settings = await AgentHook(self.conn_id).asettings()
            if made is not None and made.settings == settings:
                made.looked_up = monotonic()
                return made
            # Reading certificates takes milliseconds, in which no other trigger of the process would run.
            http = await asyncio.to_thread(_make, settings)
            self._made = _Made(settings, http, monotonic())
            if made is not None:
                made.retired = True
                if not made.in_flight:
                    await made.http.aclose()
            return self._made


@dataclass(eq=False)
class _Made:
    settings: AgentSettings
    http: httpx.AsyncClient
    looked_up: float
    in_flight: int = 0
    retired: bool = False


def _make(settings: AgentSettings) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=KEPT_CONNECTIONS)
    timeout = min(POLL_TIMEOUT, settings.timeout)
    return httpx.AsyncClient(limits=limits, **settings.client_arguments(timeout=timeout))


async def _exchange(made: _Made, call: HttpCall) -> HttpReply:
    url = made.settings.url(call)
    sending = made.http.stream(call.method, url, headers=dict(call.headers), json=call.json)
    async with sending as reply:
        body = bytearray()
        async for part in reply.aiter_bytes():
            body += part
            if len(body) > MAX_BODY:
                raise ReplyTooLargeError(f"more than {MAX_BODY} bytes")
        return HttpReply(reply.status_code, reply.headers, bytes(body), url, utcnow())


_shared: Final[dict[tuple[int, str], SharedAgentClient]] = {}


@asynccontextmanager
async def shared_client(conn_id: str) -> AsyncIterator[SharedAgentClient]:
    """The event loop's client for a connection; closed when its last user leaves."""
    key = (id(asyncio.get_running_loop()), conn_id)
    client = _shared.setdefault(key, SharedAgentClient(conn_id))
    client.users += 1
    try:
        yield client
    finally:
        client.users -= 1
        if not client.users:
            _shared.pop(key, None)
            await client.close()

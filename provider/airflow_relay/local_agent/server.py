"""Start the server: bind the socket, say where, log in JSON, run until a signal."""

from __future__ import annotations

import json
import logging
import socket
import sys
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from airflow_relay.local_agent.app import build_app
from airflow_relay.local_agent.strikes import ABORT_EXTENSION

if TYPE_CHECKING:
    import asyncio

    from airflow_relay.local_agent.settings import ServerSettings


START_FAILED = 1


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, event, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class AbortableProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP protocol, whose requests may close their connection without an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        application: Any = self.app

        async def with_abort(scope: Any, receive: Any, send: Any) -> None:
            scope.setdefault("extensions", {})[ABORT_EXTENSION] = transport.abort
            await application(scope, receive, send)

        self.app: Any = with_abort


class AnnouncingServer(uvicorn.Server):
    """Says on standard output where it listens, once it does: whoever reads that line may connect."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets if sockets and self.started else []:
            host, port = listener.getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"Agent server listening on http://{address}:{port}\n")
            sys.stdout.flush()


def serve(settings: ServerSettings) -> int:
    """Run until SIGINT or SIGTERM; jobs in work stay in the state file for the next start.

    Returns 0 after SIGINT, 1 when the start failed (the log says why). SIGTERM ends the process as such.

    :raises backends.BackendUnavailableError: a backend's libraries are missing.
    :raises store.StateFileError: the state file cannot be used.
    :raises OSError: the address cannot be bound.
    """
    _log_as_json()
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=AbortableProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
        backlog=4096,
    )
    listener = _bind(settings.host, settings.port)
    server = AnnouncingServer(config)
    with listener, suppress(KeyboardInterrupt):  # uvicorn raises it again after a clean shutdown
        server.run(sockets=[listener])
    return 0 if server.started else START_FAILED


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("airflow_relay.local_agent").setLevel(logging.INFO)

"""Reads Python exception objects: names, texts, replies that SDKs attach to them, causes."""

from __future__ import annotations

from typing import Any

from airflow_relay.core.errors.evidence import Evidence, gather_headers, snake
from airflow_relay.core.errors.reader import gather_value
from airflow_relay.core.errors.words import token_signal

MAX_CHAIN = 12
"""Exceptions looked at along causes, contexts and groups."""

_REPLY_FIELDS = (
    "body",
    "error",
    "errors",
    "message",
    "detail",
    "details",
    "reason",
    "type",
    "code",
    "json_body",
)
_STATUS_FIELDS = ("status_code", "status", "http_status", "code")
_WAIT_FIELDS = ("retry_after", "retry_after_seconds", "retry_delay")


def gather_exception(found: Evidence, error: BaseException) -> None:
    """Adds an exception and its chain to `found`. It reads attributes only, no stream, and never raises."""
    seen: set[int] = set()
    queue: list[tuple[BaseException, int]] = [(error, 0)]
    while queue and len(seen) < MAX_CHAIN:
        current, depth = queue.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        _gather_one(found, current, depth)
        queue.extend((inner, depth + 1) for inner in _inner_errors(current))


def _inner_errors(error: BaseException) -> list[BaseException]:
    inner = [error.__cause__ or (None if error.__suppress_context__ else error.__context__)]
    inner += [
        _attribute(error, name) for name in ("original_exception", "orig", "reason", "__wrapped_exception__")
    ]
    group = _attribute(error, "exceptions")
    inner += list(group)[:5] if isinstance(group, (list, tuple)) else []
    # urllib3 and requests hand the cause over as an argument
    inner += list(error.args)[:4]
    return [one for one in inner if isinstance(one, BaseException)]


def _gather_one(found: Evidence, error: BaseException, depth: int) -> None:
    name = _telling_name(error)
    # asyncio.timeout() turns a CancelledError into a TimeoutError: as a cause it is no cancellation.
    if name and not (depth and "cancel" in snake(name)):
        found.add_token("exception", name, depth)
    for text in (_text(error), *(argument for argument in error.args[:4])):
        if isinstance(text, (str, bytes, dict)):
            gather_value(found, text, key="message", depth=depth)
    for field in _REPLY_FIELDS:
        gather_value(found, _plain(_called(error, field)), key=field, depth=depth + 1)
    for field in _STATUS_FIELDS:
        status = _attribute(error, field)
        status = getattr(status, "value", status)
        if isinstance(status, int) and 400 <= status <= 599:
            found.statuses.append((depth, int(status)))
    found.hints.extend(
        (field, value)
        for field in _WAIT_FIELDS
        if isinstance(value := _attribute(error, field), (int, float, str))
    )
    _gather_reply(found, _attribute(error, "response"), depth)
    gather_headers(found, _attribute(error, "headers") or {})


def _gather_reply(found: Evidence, reply: Any, depth: int) -> None:
    """The HTTP reply that httpx, requests, aiohttp, botocore and the vendors' SDKs keep on the exception."""
    if reply is None or isinstance(reply, (str, bytes, dict, list)):
        gather_value(found, reply, key="response", depth=depth + 1)
        return
    gather_headers(found, _attribute(reply, "headers") or {})
    for field in ("status_code", "status"):
        status = _attribute(reply, field)
        if isinstance(status, int) and 400 <= status <= 599:
            found.statuses.append((depth, int(status)))
            break
    gather_value(found, _reply_body(reply), key="body", depth=depth + 1)


def _reply_body(reply: Any) -> Any:
    """The body as far as it was read: asking requests for `.content` of an open stream would do I/O."""
    if "_content" in getattr(reply, "__dict__", {}):
        content = reply.__dict__["_content"]
        return content if isinstance(content, (bytes, str)) else None
    for field in ("text", "body", "content"):
        value = _attribute(reply, field)
        if isinstance(value, (str, bytes, dict, list)):
            return value
    return None


def _telling_name(error: BaseException) -> str:
    """The most specific class name that a rule knows, else the class's own name."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind not in (Exception, BaseException, object)]
    for name in names:
        if token_signal("exception", snake(name)) is not None:
            return name
    return names[0] if names else ""


def _called(error: BaseException, field: str) -> Any:
    """An attribute; gRPC errors have `code()` and `details()` as methods."""
    value = _attribute(error, field)
    if callable(value) and field in ("code", "details") and hasattr(error, "trailing_metadata"):
        try:
            return value()
        except Exception:  # noqa: BLE001  (a foreign object's method may raise anything)
            return None
    return value


def _plain(value: Any) -> Any:
    """Only data goes on; an Enum (grpc.StatusCode) by its name, other objects not at all."""
    if isinstance(value, (str, bytes, dict, list, tuple, int, float)) and not hasattr(value, "name"):
        return value
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else None


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001  (httpx raises on `.text` of an unread stream and on a missing request)
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (a broken __str__ must not hide the error it describes)
        return ""

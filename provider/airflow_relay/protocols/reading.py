"""Reading what protocols have in common: poll hints, refusals, JSON inside a text, token counts."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from airflow_relay.protocols.errors import JobRejected, TransientReply
from airflow_relay.protocols.wire import JSON, HttpReply

TRANSIENT_STATUSES = frozenset({408, 425, 429, 499})
"""Besides every 5xx. 499 is what some gateways send when their own upstream call was cut."""

NOT_STARTED_STATUSES = frozenset({425, 429})
"""Transient replies to a submit after which the job certainly does not exist."""

GONE_STATUSES = frozenset({404, 410})

_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_MAX_DEPTH = 200
_MAX_ID = 4000


def is_transient(status: int) -> bool:
    """Whether an HTTP status says "ask again": 408, 425, 429, 499, 5xx, and numbers that are no status."""
    return status in TRANSIENT_STATUSES or not 200 <= status < 500


def is_proxy_page(reply: HttpReply) -> bool:
    """A page for people under 404: a proxy has lost its backend, the server itself says nothing."""
    return reply.status == 404 and reply.is_html()


def poll_hint(reply: HttpReply) -> float | None:
    """How long the server asks to wait, in seconds, or None.

    Reads ``openai-poll-after-ms``, ``retry-after-ms`` and ``Retry-After`` (RFC 9110 §10.2.3: seconds or a
    date). A date counts from the reply's own ``Date`` header, else from when it was received.
    """
    headers = reply.headers
    for name in ("openai-poll-after-ms", "retry-after-ms"):
        milliseconds = _duration(headers.get(name))
        if milliseconds is not None:
            return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _duration(value)
    if seconds is not None or value is None:
        return seconds
    until, since = _date(value), _date(headers.get("date")) or reply.received
    return max(0.0, (until - since).total_seconds()) if until and since else None


def _duration(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value) if value else None
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    if moment is not None and moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)  # HTTP dates are GMT even when the zone is "-0000"
    return moment


def transient(
    reply: HttpReply,
    reason: str,
    *,
    ambiguous: bool = False,
    code: str | None = None,
) -> TransientReply:
    """The error for "this reply is no news, ask again"."""
    return TransientReply(
        reason,
        status=reply.status,
        headers=reply.headers,
        body=reply.text,
        code=code,
        retry_after=poll_hint(reply),
        ambiguous=ambiguous,
    )


def rejected(reply: HttpReply, reason: str, *, code: str | None = None) -> JobRejected:
    """The error for "the server refused, and will refuse again"."""
    return JobRejected(reason, status=reply.status, headers=reply.headers, body=reply.text, code=code)


def require_success(reply: HttpReply, what: str, *, submitting: bool = False) -> None:
    """Return for a 2xx status; raise TransientReply or JobRejected for any other.

    :param what: the call, for the message: ``"submit"``, ``"poll of resp_1"``.
    :param submitting: whether the call may have created a job; decides ``TransientReply.ambiguous``.
    """
    if 200 <= reply.status < 300:
        return
    if is_transient(reply.status):
        ambiguous = submitting and reply.status not in NOT_STARTED_STATUSES
        raise transient(reply, f"{what}: the server cannot answer now", ambiguous=ambiguous)
    if 300 <= reply.status < 400:
        target = reply.headers.get("location", "nowhere").partition("?")[0]  # a query may hold a token
        raise rejected(
            reply,
            f"{what}: redirected to {target}; redirects are not followed because credentials would go along. "
            "Put the final address into the connection",
        )
    raise rejected(reply, f"{what}: refused by the server", code=error_code(reply.json()))


def require_object(reply: HttpReply, what: str, *, submitting: bool = False) -> dict[str, Any]:
    """The JSON object of a 2xx reply; TransientReply for HTML, a cut or empty body, or other JSON."""
    require_success(reply, what, submitting=submitting)
    body = reply.json_object()
    if body is not None:
        return body
    found = "an HTML page" if reply.is_html() else "no JSON object" if reply.text.strip() else "an empty body"
    raise transient(reply, f"{what}: {found} instead of JSON", ambiguous=submitting)


def error_code(body: JSON) -> str | None:
    """``error.code`` or ``error.type`` of a JSON error body, or its top-level ``code``, as text."""
    error = as_dict(as_dict(body).get("error")) or as_dict(body)
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return str(value)
    return None


def as_dict(value: JSON) -> dict[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[Any]:
    """The value when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JSON) -> str:
    """The value when it is a string, else ``""``."""
    return value if isinstance(value, str) else ""


def usable_id(value: JSON) -> str | None:
    """A job id that may go into a URL path and a database: printable, not blank, not a dot segment."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**30 else None
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_ID:
        return None
    return value if value.isprintable() and value not in {".", ".."} else None


def path_segment(value: str) -> str:
    """One path segment with every reserved character quoted, slashes included."""
    return quote(value, safe="")


def json_in_text(text: str | None) -> JSON:
    """The JSON object or array that a text is, bare or in a ```` ```json ```` fence; else None.

    Prose around the fence is allowed as long as exactly one fence holds JSON. Scalars are no data.
    """
    stripped = (text or "").strip()
    if stripped[:1] in ("{", "["):
        return _strict_json(stripped)
    if "```" not in stripped:
        return None
    if stripped.startswith("```") and stripped.endswith("```"):
        # Greedy first: the JSON may hold a fence of its own inside a string.
        whole = _strict_json(stripped.partition("\n")[2].rpartition("```")[0])
        if whole is not None:
            return whole
    found = [data for data in map(_strict_json, _FENCE.findall(stripped)) if data is not None]
    return found[0] if len(found) == 1 else None


def _strict_json(text: str) -> JSON:
    def refuse(name: str) -> None:
        raise ValueError(name)  # NaN and Infinity are no JSON

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def storable(value: JSON, *, depth: int = _MAX_DEPTH) -> JSON:
    """The value without what databases refuse: NUL, lone surrogates, numbers that are no JSON.

    :raises ValueError: nested deeper than ``depth`` levels.
    """
    if depth < 0:
        raise ValueError("nested too deeply to be stored")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, dict):
        return {storable(str(k)): storable(v, depth=depth - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(v, depth=depth - 1) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_text(value: JSON) -> str:
    """A JSON value written as JSON text, ``""`` when it is nested too deeply to be kept."""
    try:
        return json.dumps(storable(value), ensure_ascii=False)
    except ValueError:
        return ""

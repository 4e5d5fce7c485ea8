"""The Responses API on the wire: checking requests, building response objects and error bodies.

Field names and shapes follow the public API as the ``openai`` Python client reads it; the fields that the
client cannot do without are id, created_at, model, object, output, parallel_tool_calls, tool_choice, tools.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_relay.local_agent.jobs import Job

MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512
MAX_IDEMPOTENCY_KEY = 256

_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "user", "text", "reasoning")


class ApiError(Exception):
    """A request that is answered with an error body.

    :param status: HTTP status.
    :param message: for people; says what to change.
    :param param: the request field at fault, if one is.
    :param code: for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        error_type: str = "invalid_request_error",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, error_type=error_type, param=param, code=code)
        self.headers = headers or {}


def error_body(
    message: str,
    *,
    error_type: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """OpenAI's error shape: ``{"error": {"message", "type", "param", "code"}}``."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


@dataclass(frozen=True)
class SubmitRequest:
    """A checked ``POST /v1/responses``."""

    model: str
    """Empty when the request leaves it to the server."""
    text: str
    """The input as one text; message items are joined by blank lines."""
    background: bool
    store: bool
    metadata: dict[str, str]
    options: dict[str, Any]
    """instructions, max_output_tokens, temperature, json_schema: what a backend may use."""
    echo: dict[str, Any]
    body: dict[str, Any]
    fingerprint: str


def parse_submit(body: Any) -> SubmitRequest:
    """:raises ApiError: 400 naming the field."""
    if not isinstance(body, dict):
        raise ApiError(400, "The request body must be a JSON object.", code="invalid_json")
    model = body.get("model") or ""
    if not isinstance(model, str):
        raise ApiError(400, "'model' must be a string.", param="model", code="invalid_type")
    if body.get("stream"):
        raise ApiError(
            400,
            "This server does not stream; use background mode and poll.",
            param="stream",
            code="unsupported_parameter",
        )
    if body.get("previous_response_id"):
        raise ApiError(
            400,
            "This server keeps no conversations; send the whole input.",
            param="previous_response_id",
            code="unsupported_parameter",
        )
    metadata = _metadata(body.get("metadata"))
    limit = _positive_integer(body, "max_output_tokens")
    background = _boolean(body, "background", default=False)
    store = _boolean(body, "store", default=True)
    echo = {name: body.get(name) for name in _ECHOED}
    echo |= {"metadata": metadata, "background": background, "store": store}
    return SubmitRequest(
        model=model,
        text=_input_text(body.get("input")),
        background=background,
        store=store,
        metadata=metadata,
        options={
            "instructions": body.get("instructions"),
            "max_output_tokens": limit,
            "temperature": body.get("temperature"),
            "json_schema": _json_schema(body.get("text")),
        },
        echo=echo,
        body=body,
        fingerprint=fingerprint(body),
    )


def fingerprint(body: dict[str, Any]) -> str:
    """SHA-256 of the body in canonical JSON: the same for the same content in another key order."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def parse_idempotency_key(header: str | None) -> str | None:
    """The header's value without the quotes of a structured-field string.

    :raises ApiError: 400 when it is empty or longer than 256 characters.
    """
    if header is None:
        return None
    key = header.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not key or len(key) > MAX_IDEMPOTENCY_KEY:
        raise ApiError(
            400,
            f"The Idempotency-Key header must have 1 to {MAX_IDEMPOTENCY_KEY} characters.",
            param="Idempotency-Key",
            code="invalid_idempotency_key",
        )
    return key


def response_object(job: Job) -> dict[str, Any]:
    """The response object for a job, complete enough for the ``openai`` client."""
    return {
        "id": job.id,
        "object": "response",
        "created_at": job.created_at,
        "completed_at": job.completed_at,
        "status": job.status.value,
        "model": job.model,
        "error": job.error,
        "incomplete_details": {"reason": job.incomplete_reason} if job.incomplete_reason else None,
        "output": job.output,
        "usage": job.usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "previous_response_id": None,
        **job.echo,
    }


def message_item(job_id: str, content: list[dict[str, Any]], *, complete: bool = True) -> dict[str, Any]:
    return {
        "id": f"msg_{job_id.removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "status": "completed" if complete else "incomplete",
        "content": content,
    }


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def usage_object(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def _input_text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value:
        texts = [text for item in value for text in _item_texts(item)]
        if texts:
            return "\n\n".join(texts)
    raise ApiError(
        400,
        "'input' must be a non-empty string, or a list of messages with text.",
        param="input",
        code="missing_required_parameter" if value is None else "invalid_value",
    )


def _item_texts(item: Any) -> list[str]:
    if not isinstance(item, dict):
        raise ApiError(400, "Each item of 'input' must be an object.", param="input", code="invalid_type")
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ApiError(400, "'metadata' must map strings to strings.", param="metadata", code="invalid_type")
    if len(value) > MAX_METADATA_PAIRS:
        raise ApiError(400, f"'metadata' has more than {MAX_METADATA_PAIRS} pairs.", param="metadata")
    for name, text in value.items():
        if len(name) > MAX_METADATA_KEY or len(text) > MAX_METADATA_VALUE:
            raise ApiError(
                400,
                f"metadata pair {name[:MAX_METADATA_KEY]!r} is too long: "
                f"{MAX_METADATA_KEY} characters for the name, {MAX_METADATA_VALUE} for the value.",
                param="metadata",
                code="string_above_max_length",
            )
    return dict(value)


def _positive_integer(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApiError(400, f"'{name}' must be a positive integer.", param=name, code="invalid_type")
    return value


def _boolean(body: dict[str, Any], name: str, *, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ApiError(400, f"'{name}' must be true or false.", param=name, code="invalid_type")
    return value


def _json_schema(text: Any) -> dict[str, Any] | None:
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema = form.get("schema")
        if isinstance(schema, dict):
            return schema
        raise ApiError(400, "'text.format.schema' must be an object.", param="text.format.schema")
    return None

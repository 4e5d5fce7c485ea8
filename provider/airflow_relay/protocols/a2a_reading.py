"""What A2A replies say, in versions 1.0 and 0.3: tasks, messages, parts and error codes as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_relay.protocols.base import JSON, HttpReply, JobError, Phase
from airflow_relay.protocols.reading import as_dict, as_list, as_text, json_in_text, usable_id

TASK_NOT_FOUND = -32001
TASK_NOT_CANCELABLE = -32002

TRANSIENT_CODES = frozenset({-32000, -32603, -32006})
"""A server error without a name (OpenClaw's rate limit uses it), an internal error, an agent that answered
nonsense: none of them says anything about the task itself."""

_REASONS = {
    "TASK_NOT_FOUND": TASK_NOT_FOUND,
    "TASK_NOT_CANCELABLE": TASK_NOT_CANCELABLE,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "INVALID_AGENT_RESPONSE": -32006,
    "VERSION_NOT_SUPPORTED": -32009,
    "INTERNAL_ERROR": -32603,
}
"""``google.rpc.ErrorInfo.reason`` of the HTTP+JSON binding → the JSON-RPC code of the same error."""

_STATES = {
    "submitted": Phase.QUEUED,
    "working": Phase.RUNNING,
    "completed": Phase.SUCCEEDED,
    "failed": Phase.FAILED,
    "canceled": Phase.CANCELLED,
    "cancelled": Phase.CANCELLED,
    "rejected": Phase.REFUSED,
    "input_required": Phase.BLOCKED,
    "auth_required": Phase.BLOCKED,
}

_SILENT = {
    Phase.FAILED: "the agent failed and gives no reason",
    Phase.REFUSED: "the agent rejected the task and gives no reason",
    Phase.BLOCKED: "the agent waits for input or authorisation",
}


@dataclass(frozen=True)
class A2AError:
    """An error in either binding, under its JSON-RPC code."""

    code: int
    message: str


def read_error(reply: HttpReply) -> A2AError | None:
    """The A2A error that a reply carries; JSON-RPC errors come with HTTP 200, too."""
    error = as_dict(as_dict(reply.json()).get("error"))
    code, message = error.get("code"), as_text(error.get("message"))
    for detail in as_list(error.get("details")):
        known = _REASONS.get(as_text(as_dict(detail).get("reason")))
        if known is not None:
            return A2AError(known, message)
    if isinstance(code, int) and code < 0:
        return A2AError(code, message)
    return None


def phase_of(state: str) -> Phase:
    """1.0 and 0.3 names alike; an unknown state is work in progress."""
    name = state.removeprefix("TASK_STATE_").lower().replace("-", "_")
    return _STATES.get(name, Phase.RUNNING)


def unwrap(result: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """``(task, message)`` of a result, of which one is None: 1.0 wraps them at submit, 0.3 never does."""
    for name in ("task", "message"):
        if isinstance(result.get(name), dict):
            return (result[name], None) if name == "task" else (None, result[name])
    if isinstance(result.get("status"), dict) and usable_id(result.get("id")):
        return result, None
    return None, result if isinstance(result.get("parts"), list) else None


def text_of(parts: JSON) -> str:
    """The text parts, one to a line break, as the A2A SDK joins them."""
    texts = (as_text(as_dict(part).get("text")) for part in as_list(parts))
    return "\n".join(text for text in texts if text)


def data_of(parts: Iterable[JSON]) -> JSON:
    """The data part when there is one, a list when there are several, None when there is none."""
    found = [data for data in (as_dict(part).get("data") for part in parts) if isinstance(data, (dict, list))]
    return found[0] if len(found) == 1 else found or None


def artifact_of(artifact: dict[str, Any]) -> dict[str, Any]:
    """One artifact without its text, which is in the snapshot's text already when it is the only one."""
    parts = as_list(artifact.get("parts"))
    return {
        "id": as_text(artifact.get("artifactId")),
        "name": as_text(artifact.get("name")),
        "text": text_of(parts),
        "data": data_of(parts),
        "files": [part for part in map(as_dict, parts) if {"url", "raw", "file"} & part.keys()],
    }


@dataclass(frozen=True)
class Output:
    """What a task or message delivers."""

    text: str
    data: JSON
    artifacts: list[dict[str, Any]]

    @property
    def empty(self) -> bool:
        has_files = any(artifact["files"] for artifact in self.artifacts)
        return not self.text.strip() and self.data is None and not has_files


def task_output(task: dict[str, Any]) -> Output:
    """Artifacts are the output; an agent without any may have put it into its closing message."""
    artifacts = [as_dict(a) for a in as_list(task.get("artifacts"))]
    parts = [part for artifact in artifacts for part in as_list(artifact.get("parts"))]
    text = "\n\n".join(filter(None, (text_of(a.get("parts")) for a in artifacts)))
    if not parts:
        parts = as_list(as_dict(as_dict(task.get("status")).get("message")).get("parts"))
        text = text_of(parts)
    return _output(text, parts, [artifact_of(a) for a in artifacts])


def message_output(message: dict[str, Any]) -> Output:
    parts = as_list(message.get("parts"))
    return _output(text_of(parts), parts, [])


def _output(text: str, parts: list[JSON], artifacts: list[dict[str, Any]]) -> Output:
    data = data_of(parts)
    return Output(text, json_in_text(text) if data is None else data, artifacts)


def state_error(phase: Phase, task: dict[str, Any], http_status: int) -> JobError | None:
    """The reason that the status message gives; an agent that crashed gives none."""
    if phase not in _SILENT:
        return None
    status = as_dict(task.get("status"))
    message = text_of(as_dict(status.get("message")).get("parts")) or _SILENT[phase]
    name = as_text(status.get("state")).removeprefix("TASK_STATE_").lower().replace("-", "_")
    return JobError(name, message, http_status, {"code": name, "message": message})

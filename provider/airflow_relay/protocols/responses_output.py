"""What a finished Responses object says: its ``output`` array as text, refusal, open calls, artifacts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_relay.protocols.reading import as_dict, as_list, as_text

_CLIENT_CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Items by which the model asks its caller to do something, and the item that answers each."""

_FINAL, _COMMENTARY = "final_answer", "commentary"


@dataclass(frozen=True)
class Output:
    """The readable content of an ``output`` array."""

    text: str
    """Text parts of the answer; several messages are set apart by an empty line."""
    refusal: str
    """Refusal parts of the answer, ``""`` when there is none."""
    open_calls: list[str]
    """Names of the calls that the caller is asked to make and that nothing after them answers."""
    artifacts: list[dict[str, Any]]
    """Generated images: ``{"type": "image", "media_type": …, "data": base64}``."""


def read(items: Iterable[Any]) -> Output:
    """Read an ``output`` array. Items of unknown type are passed over."""
    known = [as_dict(item) for item in items]
    messages = _answers([item for item in known if item.get("type") == "message"])
    return Output(
        text="\n\n".join(filter(None, (_parts(m, "output_text", "text") for m in messages))),
        refusal="\n".join(filter(None, (_parts(m, "refusal", "refusal") for m in messages))),
        open_calls=_open_calls(known),
        artifacts=[
            _image(item)
            for item in known
            if item.get("type") == "image_generation_call" and item.get("result")
        ],
    )


def _answers(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    final = [m for m in messages if m.get("phase") == _FINAL]
    return final or [m for m in messages if m.get("phase") != _COMMENTARY]


def _parts(message: dict[str, Any], type_: str, field: str) -> str:
    parts = (as_dict(part) for part in as_list(message.get("content")))
    return "".join(as_text(part.get(field)) for part in parts if part.get("type") == type_)


def _open_calls(items: list[dict[str, Any]]) -> list[str]:
    """Calls without an answer. Text before a call announces it; text after it means it was dealt with."""
    answered = {_call_id(i) for i in items if i.get("type") in _CLIENT_CALLS.values()}
    waiting: list[str] = []
    for item in items:
        type_ = as_text(item.get("type"))
        if type_ in _CLIENT_CALLS and _call_id(item) not in answered:
            waiting.append(as_text(item.get("name")) or type_)
        elif type_ == "message" and item.get("phase") != _COMMENTARY and _parts(item, "output_text", "text"):
            waiting.clear()
    return waiting


def _call_id(item: dict[str, Any]) -> str:
    ids = (item.get("call_id"), item.get("approval_request_id"), item.get("id"))
    return next((id_ for id_ in ids if isinstance(id_, str)), "")


def _image(item: dict[str, Any]) -> dict[str, Any]:
    format_ = as_text(item.get("output_format")) or "png"
    return {"type": "image", "media_type": f"image/{format_}", "data": as_text(item.get("result"))}

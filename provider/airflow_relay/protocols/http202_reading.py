"""Reading a generic 202 server by settings: JSON paths, status words, path templates."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from urllib.parse import unquote, urlsplit

from airflow_relay.protocols.base import JSON, HttpReply, InvalidRequest, Phase

BODY_FIELDS = frozenset({"input", "model", "instructions", "metadata"})

_WORDS: dict[Phase, str] = {
    Phase.QUEUED: "queued pending submitted accepted created waiting scheduled notstarted not_started",
    Phase.RUNNING: "running in_progress inprogress processing started working active",
    Phase.SUCCEEDED: "succeeded success successful completed complete done finished ok",
    Phase.FAILED: "failed failure error errored expired timeout timed_out crashed",
    Phase.CANCELLED: "cancelled canceled aborted",
    Phase.REFUSED: "refused rejected declined",
    Phase.BLOCKED: "blocked requires_action input_required auth_required interrupted awaiting_input",
    Phase.INCOMPLETE: "incomplete partial truncated",
}
_USUAL = {word: phase for phase, words in _WORDS.items() for word in words.split()}


def normal(word: str) -> str:
    """A status word without case, with underscores for spaces and dashes."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def phases(extra: Mapping[str, str]) -> dict[str, Phase]:
    """The usual status words and these. :raises InvalidRequest: a word is mapped to no phase."""
    try:
        return {**_USUAL, **{normal(word): Phase(phase) for word, phase in extra.items()}}
    except ValueError as e:
        raise InvalidRequest(f"status_map: {e}; phases are {[phase.value for phase in Phase]}") from e


def at(body: JSON, path: str) -> JSON:
    """The value at a dotted path, None when it is not there; ``""`` is the body itself."""
    for step in filter(None, path.split(".")):
        if isinstance(body, dict):
            body = body.get(step)
        elif isinstance(body, list) and step.isdecimal() and len(step) < 10 and int(step) < len(body):
            body = body[int(step)]
        else:
            return None
    return body


def fill(template: str, *, id_: str, location: str = "") -> str:
    """A path template with its fields filled. :raises InvalidRequest: a field that there is not."""
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as e:
        raise InvalidRequest(f"bad path template {template!r}: {e}") from e
    if names - {"id", "location"}:
        raise InvalidRequest(f"path template {template!r}: fields are {{id}} and {{location}}")
    return template.format(id=id_, location=location)


def last_segment(address: str) -> str:
    """What identifies a status monitor for people: the last part of its path."""
    return unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2])


def is_plain_text(reply: HttpReply) -> bool:
    """Whether the body is declared as text for reading (not HTML) and holds some."""
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.startswith("text/") and not reply.is_html() and bool(reply.text.strip())

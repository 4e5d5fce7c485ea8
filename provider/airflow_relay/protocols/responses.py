"""OpenAI Responses API in background mode, as OpenAI, Azure, vLLM, SGLang, LiteLLM, OGX and others speak it.

``POST /v1/responses`` with ``background`` and ``store``, ``GET /v1/responses/{id}``,
``POST /v1/responses/{id}/cancel``. There is no list endpoint, so a job whose id was never received cannot be
looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_relay.protocols import responses_output as output
from airflow_relay.protocols.base import (
    AgentProtocol,
    Capabilities,
    HttpCall,
    HttpReply,
    InvalidRequest,
    JobError,
    JobRef,
    JobRequest,
    Phase,
    Snapshot,
    Usage,
    lost,
    poll_now,
)
from airflow_relay.protocols.reading import (
    GONE_STATUSES,
    as_dict,
    as_list,
    as_text,
    error_code,
    is_proxy_page,
    json_in_text,
    path_segment,
    poll_hint,
    rejected,
    require_object,
    require_success,
    transient,
    usable_id,
)

_PENDING = {"queued": Phase.QUEUED, "in_progress": Phase.RUNNING}
_ENDED = {
    "completed": Phase.SUCCEEDED,
    "failed": Phase.FAILED,
    "cancelled": Phase.CANCELLED,
    "canceled": Phase.CANCELLED,
    "incomplete": Phase.INCOMPLETE,
    "requires_action": Phase.BLOCKED,
}

_OWN_FIELDS = frozenset({"input", "model", "instructions", "metadata", "background", "store", "stream"})
_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
_KEY_IN_METADATA = "relay_key"
_EXISTING_ID = ("response_id", "existing_response_id", "existing_id", "resource_id")


@dataclass(frozen=True, kw_only=True)
class ResponsesProtocol(AgentProtocol):
    """Responses API, background mode.

    Wire facts: OpenAI's background guide and SDK, and the deviations of the servers that copy it.
    """

    name: ClassVar[str] = "responses"

    path: str = "/v1/responses"
    """Below the connection's base. A base that ends in a version (``/v1``) is not doubled."""
    idempotency: bool = False
    """Whether this server promises to answer a repeated Idempotency-Key with the same response. OpenAI does
    not; the header is sent anyway."""
    allow_empty: bool = False
    """Accept ``completed`` without any output. LiteLLM 1.91-1.95 reported jobs that way whose upstream call
    had been cut, so it is a failure unless asked for."""
    fail_on_output: str = ""
    """Regular expression; a completed response whose text it finds has failed in truth. ``""`` = none."""
    min_poll_interval: float = 0.0

    def __post_init__(self) -> None:
        """:raises InvalidRequest: a bad pattern."""
        try:
            re.compile(self.fail_on_output)
        except re.error as e:
            raise InvalidRequest(f"protocol {self.name!r}: fail_on_output: {e}") from e

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(cancel=True, idempotent_submit=self.idempotency)

    def submit(self, req: JobRequest) -> HttpCall:
        """:raises InvalidRequest: metadata over the API's limits, or options that Relay sets itself."""
        taken = sorted(_OWN_FIELDS & req.options.keys())
        if taken:
            raise InvalidRequest(
                f"options {taken} cannot be set: Relay sends them itself "
                "(background and store are always on, stream never)"
            )
        body: dict[str, Any] = {**req.options, "input": req.input, "background": True, "store": True}
        body["metadata"] = _metadata(req)
        if req.model is not None:
            body["model"] = req.model
        if req.instructions is not None:
            body["instructions"] = req.instructions
        return HttpCall("POST", self.path, {**_ACCEPT, "Idempotency-Key": req.key}, body)

    def parse_submit(self, reply: HttpReply) -> Snapshot:
        body = as_dict(reply.json())
        if reply.status == 409:
            return self._attach(body, reply)
        response = _failed_response(reply) or require_object(reply, "submit", submitting=True)
        id_ = usable_id(response.get("id"))
        ref = self.ref(id_) if id_ else None
        if not _is_response(response):
            if response.get("error"):
                raise rejected(reply, "submit: the reply is an error", code=error_code(response))
            raise transient(reply, "submit: the reply is no response object", ambiguous=True)
        snapshot = self._snapshot(ref, response, reply)
        if ref is None and not snapshot.terminal:
            raise transient(reply, "submit: accepted, but the reply names no id", ambiguous=True)
        return snapshot

    def _attach(self, body: dict[str, Any], reply: HttpReply) -> Snapshot:
        id_ = usable_id(body.get("id")) if _is_response(body) else _existing_id(body)
        if id_ is None:
            raise transient(
                reply, "submit: an earlier submit with this key is still in flight", ambiguous=True
            )
        return poll_now(self.ref(id_), "conflict")

    def poll(self, ref: JobRef) -> HttpCall:
        return HttpCall("GET", self._job_path(ref), dict(_ACCEPT))

    def parse_poll(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        what = f"poll of {ref.id}"
        if reply.status in GONE_STATUSES:
            if is_proxy_page(reply):
                raise transient(reply, f"{what}: a proxy answered")
            return lost(ref, reply)
        response = _failed_response(reply) or require_object(reply, what)
        if not _is_response(response):
            raise transient(reply, f"{what}: the reply is no response object")
        return self._snapshot(ref, response, reply)

    def cancel(self, ref: JobRef) -> HttpCall:
        return HttpCall("POST", f"{self._job_path(ref)}/cancel", dict(_ACCEPT))

    def parse_cancel(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        """Read the reply to a cancel. A job that had already ended is no error (vLLM says 400, OGX 409)."""
        if reply.status in {400, 409}:
            return poll_now(ref, "not_cancelable")
        if reply.status in GONE_STATUSES or _failed_response(reply):
            return self.parse_poll(ref, reply)
        require_success(reply, f"cancel of {ref.id}")
        response = reply.json_object() or {}
        if not _is_response(response):
            return poll_now(ref, "cancelling")
        return self._snapshot(ref, response, reply)

    def _job_path(self, ref: JobRef) -> str:
        return f"{self.path.rstrip('/')}/{path_segment(ref.id)}"

    def _snapshot(self, ref: JobRef | None, response: dict[str, Any], reply: HttpReply) -> Snapshot:
        status = _status(response)
        usage = Usage.from_json(response.get("usage"))
        phase = _ENDED.get(status)
        if phase is None:
            # A status that nobody knows is work in progress until the deadline says otherwise.
            pending = _PENDING.get(status, Phase.RUNNING)
            return Snapshot(ref, pending, status, usage=usage, poll_after=poll_hint(reply))
        found = output.read(as_list(response.get("output")))
        phase, error = self._outcome(phase, response, found, reply.status)
        return Snapshot(
            ref,
            phase,
            status,
            text=found.text or None,
            data=json_in_text(found.text),
            artifacts=found.artifacts,
            error=error,
            usage=usage,
        )

    def _outcome(
        self, phase: Phase, response: dict[str, Any], found: output.Output, http_status: int
    ) -> tuple[Phase, JobError | None]:
        if phase is Phase.FAILED or (phase is Phase.SUCCEEDED and response.get("error")):
            return Phase.FAILED, _error(response.get("error"), http_status)
        if phase is Phase.INCOMPLETE:
            details = as_dict(response.get("incomplete_details"))
            reason = as_text(details.get("reason")) or "unknown"
            # A filtered text is no partial result that anyone may publish.
            ended = Phase.REFUSED if reason == "content_filter" else Phase.INCOMPLETE
            return ended, JobError(reason, f"the response stopped early: {reason}", http_status, details)
        if phase is not Phase.SUCCEEDED:
            return phase, _error(response.get("error"), http_status) if response.get("error") else None
        return self._completed(found, http_status)

    def _completed(self, found: output.Output, http_status: int) -> tuple[Phase, JobError | None]:
        """``completed`` is success only with an answer in it."""
        if found.refusal:
            return Phase.REFUSED, JobError("refusal", found.refusal, http_status)
        if found.open_calls:
            message = f"the agent waits for the result of: {', '.join(found.open_calls)}"
            return Phase.BLOCKED, JobError("tool_call", message, http_status)
        if not found.text.strip() and not found.artifacts and not self.allow_empty:
            message = "the response is completed but has no output"
            return Phase.FAILED, JobError("empty_output", message, http_status)
        if self.fail_on_output and re.search(self.fail_on_output, found.text):
            # OpenClaw reports a failed model call as output whose text is the error.
            return Phase.FAILED, JobError("output_guard", found.text, http_status, {"message": found.text})
        return Phase.SUCCEEDED, None


_ACCEPT: Mapping[str, str] = {"Accept": "application/json"}


def _metadata(req: JobRequest) -> dict[str, str]:
    metadata = dict(req.metadata)
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidRequest(f"metadata {name!r}: names and values must be text")
        if len(name) > _METADATA_KEY or len(value) > _METADATA_VALUE:
            raise InvalidRequest(
                f"metadata {name[:80]!r}: a name has at most {_METADATA_KEY} characters, "
                f"a value {_METADATA_VALUE}"
            )
    if len(metadata) > _METADATA_PAIRS:
        raise InvalidRequest(f"metadata: at most {_METADATA_PAIRS} pairs, got {len(metadata)}")
    if len(metadata) < _METADATA_PAIRS:
        # Lets a person find the job in the server's dashboard; no server can be asked for it.
        metadata.setdefault(_KEY_IN_METADATA, req.key)
    return metadata


def _is_response(body: Mapping[str, Any]) -> bool:
    if body.get("object") == "response":
        return True
    shaped = isinstance(body.get("status"), str) or isinstance(body.get("output"), list)
    return shaped and usable_id(body.get("id")) is not None


def _failed_response(reply: HttpReply) -> dict[str, Any] | None:
    """A response object that an error status carries: OpenClaw answers 500 with the failed response in it."""
    body = reply.json_object()
    if reply.status < 400 or body is None or usable_id(body.get("id")) is None:
        return None
    return body if as_text(body.get("status")) in _ENDED else None


def _status(response: Mapping[str, Any]) -> str:
    status = response.get("status")
    if isinstance(status, str):
        return status
    # Foreground copies of the API leave the status out: what they return is the end.
    if response.get("error"):
        return "failed"
    return "completed" if as_list(response.get("output")) else "unknown"


def _existing_id(body: Mapping[str, Any]) -> str | None:
    error = as_dict(body.get("error"))
    for place in (body, error, as_dict(error.get("details")), as_dict(body.get("detail"))):
        for name in _EXISTING_ID:
            id_ = usable_id(place.get(name))
            if id_:
                return id_
    return None


def _error(error: Any, http_status: int) -> JobError:
    if isinstance(error, str) and error:
        return JobError(None, error, http_status, {"message": error})
    details = as_dict(error)
    # vLLM sets only the status: the error stays null.
    message = as_text(details.get("message")) or "the server says that the job failed, and gives no reason"
    return JobError(error_code(details), message, http_status, details or None)

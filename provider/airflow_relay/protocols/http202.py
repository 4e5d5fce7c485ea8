"""Any server that answers 202 Accepted with the address of a status monitor (RFC 9110 §15.3.3, RFC 7240).

``POST`` with ``Prefer: respond-async`` and ``Idempotency-Key`` → ``202`` + ``Location`` (+ ``Retry-After``);
``GET`` there until it is 200 with a result, or 303 See Other to one. Where in the JSON things are, and what
the server's status words mean, are settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_relay.protocols import http202_reading as wire
from airflow_relay.protocols.base import (
    JSON,
    PENDING,
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
    error_code,
    json_in_text,
    path_segment,
    poll_hint,
    rejected,
    require_success,
    to_text,
    transient,
    usable_id,
)
from airflow_relay.protocols.urls import resolve

_SEE_OTHER = frozenset({302, 303})


@dataclass(frozen=True, kw_only=True)
class Http202Protocol(AgentProtocol):
    """Asynchronous request-reply over plain HTTP. All paths are below the connection's base.

    JSON paths are names and list indexes joined by dots (``choices.0.text``); ``""`` is the whole body.
    """

    name: ClassVar[str] = "http202"

    submit_path: str = "/jobs"
    poll_path: str = ""
    """Template such as ``/jobs/{id}`` for a server that gives an id and no Location."""
    cancel_path: str = ""
    """Template with ``{id}``, or ``{location}`` for the status monitor itself; ``""`` = no cancel."""
    cancel_method: str = "DELETE"
    wait_seconds: float = 0.0
    """How long the server may hold the submit before it answers 202 (``Prefer: wait``); 0 = not at all."""
    idempotency: bool = False
    """Whether the server promises one job per Idempotency-Key; the header is sent anyway."""
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Other names for the body's fields ``input``, ``model``, ``instructions``, ``metadata``."""
    id_path: str = "id"
    status_path: str = "status"
    result_path: str = "result"
    error_path: str = "error"
    usage_path: str = "usage"
    progress_path: str = "progress"
    status_map: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The server's words → names of phases, besides the usual ones; case does not matter."""
    allow_empty: bool = False
    min_poll_interval: float = 0.0

    def __post_init__(self) -> None:
        """:raises InvalidRequest: a setting that no request could be made with."""
        unknown = sorted(self.fields.keys() - wire.BODY_FIELDS)
        if unknown:
            raise InvalidRequest(f"fields: {unknown} are none of {sorted(wire.BODY_FIELDS)}")
        if self.cancel_method not in {"DELETE", "POST", "PUT"}:
            raise InvalidRequest(f"cancel_method must be DELETE, POST or PUT, not {self.cancel_method!r}")
        for name in ("poll_path", "cancel_path"):
            wire.fill(getattr(self, name), id_="x", location="/x")
        wire.phases(self.status_map)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(cancel=bool(self.cancel_path), idempotent_submit=self.idempotency)

    def submit(self, req: JobRequest) -> HttpCall:
        values: dict[str, Any] = {"input": req.input, "model": req.model, "instructions": req.instructions}
        values["metadata"] = dict(req.metadata) or None
        named = {self.fields.get(k, k): v for k, v in values.items() if v is not None}
        clash = sorted(named.keys() & req.options.keys())
        if clash:
            raise InvalidRequest(f"options {clash} are fields that the request fills itself")
        prefer = "respond-async" + (f", wait={int(self.wait_seconds)}" if self.wait_seconds >= 1 else "")
        headers = {"Accept": "application/json", "Prefer": prefer, "Idempotency-Key": req.key}
        return HttpCall("POST", self.submit_path, headers, {**req.options, **named})

    def parse_submit(self, reply: HttpReply) -> Snapshot:
        if reply.status == 409:
            ref = self._new_ref(reply)
            if ref is None:
                reason = "submit: an earlier submit with this key is still in flight"
                raise transient(reply, reason, ambiguous=True)
            return poll_now(ref, "conflict")
        if reply.status in _SEE_OTHER and "location" in reply.headers:
            ref = self._new_ref(reply)
            return poll_now(ref or self._result_ref(reply, reply.headers["location"]), "see other")
        require_success(reply, "submit", submitting=True)
        phase, status = self._phase(reply)
        if phase in PENDING or (phase is None and reply.status == 202):
            ref = self._new_ref(reply)
            if ref is None:
                raise transient(reply, "submit: accepted, but no address to ask", ambiguous=True)
            return self._pending(ref, phase or Phase.QUEUED, status, reply)
        return self._ended(self._new_ref(reply), phase, status, reply, submitting=True)

    def poll(self, ref: JobRef) -> HttpCall:
        return HttpCall("GET", self._monitor(ref), {"Accept": "application/json, text/plain;q=0.5"})

    def parse_poll(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        if reply.status in GONE_STATUSES:
            return lost(ref, reply)
        if reply.status in _SEE_OTHER and "location" in reply.headers:
            where = self._address(reply, reply.headers["location"])
            return poll_now(JobRef(ref.protocol, ref.id, {**ref.extra, "result": where}), "see other")
        require_success(reply, f"poll of {ref.id}")
        if ref.extra.get("result") and reply.status != 202:
            return self._ended(ref, None, None, reply)
        phase, status = self._phase(reply)
        if phase in PENDING or (phase is None and reply.status == 202):
            return self._pending(ref, phase or Phase.RUNNING, status, reply)
        return self._ended(ref, phase, status, reply)

    def cancel(self, ref: JobRef) -> HttpCall | None:
        if not self.cancel_path:
            return None
        location = str(ref.extra.get("location") or "") or wire.fill(self.poll_path, id_=path_segment(ref.id))
        path = wire.fill(self.cancel_path, id_=path_segment(ref.id), location=location)
        return HttpCall(self.cancel_method, path, {"Accept": "application/json"})

    def parse_cancel(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        """Read the reply to a cancel. A job that has ended is no error; a deleted one is cancelled."""
        if reply.status in {400, 409}:
            return poll_now(ref, "not_cancelable")
        if reply.status in GONE_STATUSES:
            return lost(ref, reply)
        require_success(reply, f"cancel of {ref.id}")
        phase, status = self._phase(reply)
        if phase is Phase.CANCELLED or (
            phase is None and self.cancel_method == "DELETE" and reply.status != 202
        ):
            return Snapshot(ref, Phase.CANCELLED, status or "deleted")
        return poll_now(ref, status or "cancelling")

    # -- where the job is

    def _new_ref(self, reply: HttpReply) -> JobRef | None:
        """The reference that a reply to a submit gives: by its Location, else by an id and ``poll_path``."""
        id_ = usable_id(wire.at(reply.json(), self.id_path))
        location = reply.headers.get("location")
        if location:
            address = self._address(reply, location)
            return self.ref(id_ or usable_id(wire.last_segment(address)) or "job", location=address)
        return self.ref(id_) if id_ and self.poll_path else None

    def _result_ref(self, reply: HttpReply, location: str) -> JobRef:
        return self.ref("job", location=self._address(reply, location))

    def _address(self, reply: HttpReply, location: str) -> str:
        """:raises JobRejected: it leads to another origin, where credentials must not go."""
        try:
            if reply.url:
                return resolve(location, reply.url)
            # Only the form can be judged here; the origin is compared when the call is made (urls.join).
            resolve(location, location if "://" in location else "http://unknown.invalid/")
        except InvalidRequest as e:
            raise rejected(reply, f"the server points to an address that is not followed: {e}") from e
        return location

    def _monitor(self, ref: JobRef) -> str:
        known = ref.extra.get("result") or ref.extra.get("location")
        return str(known) if known else wire.fill(self.poll_path, id_=path_segment(ref.id))

    # -- what it says

    def _phase(self, reply: HttpReply) -> tuple[Phase | None, str | None]:
        """The phase and the server's word for it; (None, None) when the body holds no status word."""
        word = wire.at(reply.json(), self.status_path) if isinstance(reply.json(), dict) else None
        if not isinstance(word, str) or not word:
            return None, None
        return wire.phases(self.status_map).get(wire.normal(word), Phase.RUNNING), word

    def _pending(self, ref: JobRef, phase: Phase, status: str | None, reply: HttpReply) -> Snapshot:
        progress = wire.at(reply.json(), self.progress_path)
        return Snapshot(
            ref,
            phase,
            status or str(reply.status),
            usage=Usage.from_json(wire.at(reply.json(), self.usage_path)),
            poll_after=poll_hint(reply),
            progress=None if progress is None else progress if isinstance(progress, str) else str(progress),
        )

    def _ended(
        self,
        ref: JobRef | None,
        phase: Phase | None,
        status: str | None,
        reply: HttpReply,
        *,
        submitting: bool = False,
    ) -> Snapshot:
        body = reply.json()
        if body is None and not wire.is_plain_text(reply) and reply.status != 204:
            raise transient(reply, "the result is neither JSON nor text", ambiguous=submitting)
        text, data = self._result(reply, whole=phase is None)
        error = self._error(reply) if phase is not Phase.SUCCEEDED else None
        if phase is None:
            phase = Phase.FAILED if error else Phase.SUCCEEDED
        if phase is Phase.SUCCEEDED and not text.strip() and data is None and not self.allow_empty:
            phase = Phase.FAILED
            error = JobError("empty_output", "the job is finished but has no result", reply.status)
        if phase is not Phase.SUCCEEDED and error is None:
            message = f"the server says {status!r} and gives no reason"
            error = JobError(status, message, reply.status, {"code": status, "message": message})
        usage = Usage.from_json(wire.at(body, self.usage_path))
        return Snapshot(ref, phase, status or str(reply.status), text or None, data, error=error, usage=usage)

    def _result(self, reply: HttpReply, *, whole: bool) -> tuple[str, JSON]:
        """``(text, data)``. Without a status word and a result field the body itself is the result."""
        body = reply.json()
        if body is None:
            return (reply.text, None) if wire.is_plain_text(reply) else ("", None)
        found = wire.at(body, self.result_path)
        if found is None and whole:
            found = body
        if isinstance(found, (dict, list)):
            return (to_text(found), found) if found else ("", None)
        text = found if isinstance(found, str) else "" if found is None else to_text(found)
        return text, json_in_text(text)

    def _error(self, reply: HttpReply) -> JobError | None:
        found = wire.at(reply.json(), self.error_path)
        if not found:
            return None
        if isinstance(found, str):
            return JobError(None, found, reply.status, {"message": found})
        message = as_dict(found).get("message")
        return JobError(
            error_code({"error": found}),
            message if isinstance(message, str) else to_text(found),
            reply.status,
            found,
        )

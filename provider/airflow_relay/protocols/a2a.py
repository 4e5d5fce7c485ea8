"""A2A (Agent2Agent), version 1.0 over JSON-RPC or HTTP+JSON, and version 0.3 over JSON-RPC.

The request's key becomes the ``contextId``, which servers keep, so ``ListTasks`` finds a job whose
acknowledgement never arrived. Repeating a ``messageId`` is no protection: a2a-sdk starts a second task.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from airflow_relay.protocols import a2a_reading as wire
from airflow_relay.protocols.a2a_card import Binding, Version, choose_interface
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
    as_list,
    as_text,
    is_proxy_page,
    is_transient,
    path_segment,
    poll_hint,
    rejected,
    require_object,
    transient,
    usable_id,
)
from airflow_relay.protocols.urls import resolve

_METHODS = {
    Version.V1_0: {"submit": "SendMessage", "poll": "GetTask", "cancel": "CancelTask", "find": "ListTasks"},
    Version.V0_3: {"submit": "message/send", "poll": "tasks/get", "cancel": "tasks/cancel"},
}
_FIND_PAGE = 50
_PAGING = frozenset({"nextPageToken", "pageSize", "totalSize"})


@dataclass(frozen=True, kw_only=True)
class A2AProtocol(AgentProtocol):
    """A2A jobs. Settings are typed in, or read from the agent's card by ``discover`` and ``parse_card``."""

    name: ClassVar[str] = "a2a"

    endpoint: str = "/"
    """Path below the connection's base, or an absolute URL of the same origin."""
    version: str = Version.V1_0.value
    binding: str = Binding.JSONRPC.value
    tenant: str = ""
    card_path: str = "/.well-known/agent-card.json"
    lookup: bool = True
    """Whether the server has ListTasks (version 1.0 only)."""
    cancellable: bool = True
    allow_empty: bool = False
    """Accept a completed task without any output."""
    fail_on_output: str = ""
    """Regular expression; a completed task whose text it finds has failed in truth. ``""`` = none."""
    min_poll_interval: float = 0.0

    def __post_init__(self) -> None:
        """:raises InvalidRequest: version and binding unknown or contradictory, or a bad pattern."""
        try:
            version, binding = Version(self.version), Binding(self.binding)
            re.compile(self.fail_on_output)
        except (ValueError, re.error) as e:
            raise InvalidRequest(f"protocol {self.name!r}: {e}") from e
        if version is Version.V0_3 and binding is Binding.HTTP_JSON:
            raise InvalidRequest("A2A 0.3 is spoken over JSON-RPC only; set binding to 'JSONRPC'")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(cancel=self.cancellable, find=self.lookup and self.version == Version.V1_0.value)

    # -- the agent's card

    def discover(self) -> HttpCall:
        """The call that fetches the agent's card."""
        return HttpCall("GET", self.card_path, {"Accept": "application/json"})

    def parse_card(self, reply: HttpReply, *, base: str = "") -> A2AProtocol:
        """The same protocol with endpoint, version and binding from the card.

        :param base: the connection's base, when the reply does not hold the URL that was asked.
        :raises JobRejected: no interface that Relay speaks, or one on another host.
        """
        card = require_object(reply, "agent card")
        chosen = choose_interface(card)
        if chosen is None:
            raise rejected(
                reply, "the agent card offers no interface that Relay speaks (A2A 1.0, 0.3 JSON-RPC)"
            )
        try:
            endpoint = resolve(chosen.url, reply.url or base)
        except InvalidRequest as e:
            raise rejected(
                reply,
                f"the agent card leads elsewhere: {e}; set endpoint, version and binding by hand",
            ) from e
        return dataclasses.replace(
            self,
            endpoint=endpoint,
            version=chosen.version.value,
            binding=chosen.binding.value,
            tenant=chosen.tenant,
        )

    # -- jobs

    def submit(self, req: JobRequest) -> HttpCall:
        """:raises InvalidRequest: an option besides ``configuration``, or one that makes the call block."""
        unknown = sorted(req.options.keys() - {"configuration"})
        given = as_dict(req.options.get("configuration"))
        if unknown or {"returnImmediately", "blocking"} & given.keys():
            raise InvalidRequest(
                f"A2A takes the option 'configuration' only, without returnImmediately or blocking; got "
                f"{unknown or sorted(given)}"
            )
        old = self.version == Version.V0_3.value
        message: dict[str, Any] = {
            "messageId": self._message_id(req),
            "contextId": req.key,
            "role": "user" if old else "ROLE_USER",
            "parts": _parts(req, old=old),
        }
        about = {**req.metadata, **({"model": req.model} if req.model is not None else {})}
        if about:
            message["metadata"] = about
        if old:
            message["kind"] = "message"
        immediately = {"blocking": False} if old else {"returnImmediately": True}
        params = {"message": message, "configuration": {**given, **immediately}}
        return self._call("submit", self._here(), params, "POST", "/message:send")

    def _message_id(self, req: JobRequest) -> str:
        return req.key

    def parse_submit(self, reply: HttpReply) -> Snapshot:
        result = self._result(reply, "submit", submitting=True)
        task, message = wire.unwrap(result)
        if task is not None:
            id_ = usable_id(task.get("id"))
            if id_ is None:
                raise transient(reply, "submit: the task has no id", ambiguous=True)
            return self._snapshot(self.ref(id_, **self._here()), task, reply)
        if message is None:
            raise transient(reply, "submit: neither a task nor a message", ambiguous=True)
        # The agent answered at once, without a task: there is nothing to poll.
        return self._finished(None, "message", wire.message_output(message), message, reply)

    def poll(self, ref: JobRef) -> HttpCall:
        params = {"id": ref.id, "historyLength": 0}
        return self._call("poll", ref.extra, params, "GET", f"/tasks/{path_segment(ref.id)}?historyLength=0")

    def parse_poll(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        what = f"poll of {ref.id}"
        if self._gone(reply):
            return lost(ref, reply)
        task, _ = wire.unwrap(self._result(reply, what))
        if task is None:
            raise transient(reply, f"{what}: the reply is no task")
        return self._snapshot(ref, task, reply)

    def cancel(self, ref: JobRef) -> HttpCall | None:
        if not self.cancellable:
            return None
        return self._call(
            "cancel", ref.extra, {"id": ref.id}, "POST", f"/tasks/{path_segment(ref.id)}:cancel"
        )

    def parse_cancel(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        """Read the reply to a cancel. "Not cancelable": the task has ended, perhaps by a first cancel."""
        error = wire.read_error(reply)
        if error is not None and error.code == wire.TASK_NOT_CANCELABLE:
            return poll_now(ref, "not_cancelable")
        if self._gone(reply):
            return lost(ref, reply)
        task, _ = wire.unwrap(self._result(reply, f"cancel of {ref.id}"))
        return self._snapshot(ref, task, reply) if task else poll_now(ref, "cancelling")

    def find(self, req: JobRequest) -> HttpCall | None:
        if not self.capabilities.find:
            return None
        params = {"contextId": req.key, "pageSize": _FIND_PAGE, "historyLength": 0}
        # a2a-sdk 1.3.0 answers a list without artifacts by deleting them from the tasks that it keeps.
        query = urlencode({**params, "includeArtifacts": "true"})
        params = {**params, "includeArtifacts": True}
        return self._call("find", self._here(), params, "GET", f"/tasks?{query}")

    def parse_find(self, req: JobRequest, reply: HttpReply) -> Snapshot | None:
        result = self._result(reply, "look-up")
        # An empty list may be left out (protobuf does), but then nothing else than paging is there.
        if not isinstance(result.get("tasks", []), list) or (
            "tasks" not in result and result.keys() - _PAGING
        ):
            raise transient(reply, "look-up: the reply is no list of tasks")
        tasks = [as_dict(task) for task in as_list(result.get("tasks"))]
        ours = [task for task in tasks if task.get("contextId") == req.key and usable_id(task.get("id"))]
        if not ours:
            if result.get("nextPageToken"):
                raise rejected(reply, "look-up: the server lists other contexts' tasks and has more of them")
            return None
        best = max(ours, key=_preference)
        # A list leaves artifacts out, so the task itself is asked next, whatever the list says of it.
        return poll_now(self.ref(str(best["id"]), **self._here()), _state(best))

    # -- calls

    def _here(self) -> dict[str, str]:
        """What a reference keeps, so that a job is polled the way it was submitted."""
        names = ("endpoint", "version", "binding", "tenant")
        return {name: getattr(self, name) for name in names}

    def _call(
        self, operation: str, where: Mapping[str, JSON], params: dict[str, Any], method: str, path: str
    ) -> HttpCall:
        way = {**self._here(), **where}
        version = Version(way["version"])
        headers = {"Accept": "application/json"}
        if version is Version.V1_0:
            headers["A2A-Version"] = version.value  # absent means 0.3
        if way["binding"] == Binding.HTTP_JSON.value:
            prefix = f"/{path_segment(way['tenant'])}" if way["tenant"] else ""
            if method == "POST":
                headers["Content-Type"] = "application/a2a+json"
            headers["Accept"] = "application/a2a+json, application/json"
            body = None if method == "GET" else params
            return HttpCall(method, f"{way['endpoint'].rstrip('/')}{prefix}{path}", headers, body)
        if way["tenant"] and version is Version.V1_0:
            params = {**params, "tenant": way["tenant"]}
        rpc = {"jsonrpc": "2.0", "id": "relay", "method": _METHODS[version][operation], "params": params}
        return HttpCall("POST", way["endpoint"], headers, rpc)

    # -- replies

    def _gone(self, reply: HttpReply) -> bool:
        error = wire.read_error(reply)
        if error is not None:
            return error.code == wire.TASK_NOT_FOUND
        return reply.status in GONE_STATUSES and not is_proxy_page(reply)

    def _result(self, reply: HttpReply, what: str, *, submitting: bool = False) -> dict[str, Any]:
        error = wire.read_error(reply)
        if error is not None:
            code = str(error.code)
            if error.code in wire.TRANSIENT_CODES or is_transient(reply.status):
                limited = reply.status == 429 or "rate limit" in error.message.lower()
                raise transient(
                    reply,
                    f"{what}: {error.message}",
                    ambiguous=submitting and not limited,
                    code=code,
                )
            raise rejected(reply, f"{what}: A2A error {code}: {error.message}", code=code)
        if is_proxy_page(reply) and not submitting:
            raise transient(reply, f"{what}: a proxy answered")
        body = require_object(reply, what, submitting=submitting)
        if "jsonrpc" not in body:
            return body
        if not isinstance(body.get("result"), dict):
            raise transient(reply, f"{what}: neither a result nor an error", ambiguous=submitting)
        return as_dict(body["result"])

    def _snapshot(self, ref: JobRef, task: dict[str, Any], reply: HttpReply) -> Snapshot:
        phase, state = wire.phase_of(_state(task)), _state(task)
        if phase is Phase.SUCCEEDED:
            return self._finished(ref, state, wire.task_output(task), task, reply)
        usage = Usage.from_json(as_dict(task.get("metadata")).get("usage"))
        if phase in PENDING:
            remark = wire.text_of(as_dict(as_dict(task.get("status")).get("message")).get("parts"))
            hint = poll_hint(reply)
            if self.min_poll_interval:
                hint = max(hint or 0.0, self.min_poll_interval)
            return Snapshot(ref, phase, state, usage=usage, poll_after=hint, progress=remark or None)
        artifacts = [wire.artifact_of(as_dict(a)) for a in as_list(task.get("artifacts"))]
        error = wire.state_error(phase, task, reply.status)
        return Snapshot(ref, phase, state, artifacts=artifacts, error=error, usage=usage)

    def _finished(
        self, ref: JobRef | None, state: str, output: wire.Output, source: dict[str, Any], reply: HttpReply
    ) -> Snapshot:
        error = None
        if output.empty and not self.allow_empty:
            error = JobError("empty_output", "the task is completed but has no output", reply.status)
        elif self.fail_on_output and re.search(self.fail_on_output, output.text):
            # OpenClaw reports a failed model call as a completed task whose text is the error.
            error = JobError("output_guard", output.text, reply.status, {"message": output.text})
        return Snapshot(
            ref,
            Phase.FAILED if error else Phase.SUCCEEDED,
            state,
            text=output.text or None,
            data=output.data,
            artifacts=output.artifacts,
            error=error,
            usage=Usage.from_json(as_dict(source.get("metadata")).get("usage")),
        )


def _state(task: Mapping[str, Any]) -> str:
    return as_text(as_dict(task.get("status")).get("state")) or "unknown"


def _preference(task: dict[str, Any]) -> tuple[int, str]:
    """A finished task before a live one before a dead one; among equals the newest."""
    phase = wire.phase_of(_state(task))
    rank = 2 if phase is Phase.SUCCEEDED else 1 if phase in PENDING else 0
    return rank, as_text(as_dict(task.get("status")).get("timestamp"))


def _parts(req: JobRequest, *, old: bool) -> list[dict[str, Any]]:
    """A2A has no field for instructions: they go first, as text."""
    items = [req.input] if isinstance(req.input, str) else req.input
    given = [req.instructions, *items] if req.instructions is not None else items
    parts = [_part(item) for item in given]
    if old:
        return [part if "kind" in part else {"kind": _kind(part), **part} for part in parts]
    return parts


def _part(item: JSON) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, dict) and {"text", "data", "url", "raw", "file"} & item.keys():
        return {name: value for name, value in item.items() if name != "type"}
    content = as_dict(item).get("content")
    if isinstance(content, str):
        return {"text": content}
    texts = [as_text(as_dict(part).get("text")) for part in as_list(content)]
    return {"text": "\n".join(texts)} if any(texts) else {"data": item}


def _kind(part: dict[str, Any]) -> str:
    return next((kind for kind in ("text", "data") if kind in part), "file")

"""The vocabulary of agent jobs, and the interface that each agent protocol fills.

A protocol is sans-IO: it builds :class:`HttpCall` values and reads :class:`HttpReply` values. One client in
the Airflow ring sends them, with the connection's credentials, the same way for every protocol.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from airflow_relay.protocols.errors import InvalidRequest, JobRejected, ReplyError, TransientReply
from airflow_relay.protocols.reading import as_dict, as_list, storable
from airflow_relay.protocols.wire import JSON, Headers, HttpCall, HttpReply

__all__ = [
    "JSON",
    "PENDING",
    "TERMINAL",
    "AgentProtocol",
    "Capabilities",
    "Headers",
    "HttpCall",
    "HttpReply",
    "InvalidRequest",
    "JobError",
    "JobRef",
    "JobRejected",
    "JobRequest",
    "Phase",
    "ReplyError",
    "Snapshot",
    "TransientReply",
    "Usage",
    "latch_cancelled",
    "lost",
    "poll_now",
]

_PROGRESS_LENGTH = 500
_KEY_LENGTH = 256


class Phase(str, Enum):
    """Where a job is, in one vocabulary for every protocol."""

    QUEUED = "queued"  # accepted, not begun
    RUNNING = "running"  # being worked on; also every status string that nobody knows
    BLOCKED = "blocked"  # waits for input, authorisation or a tool result that Relay does not give
    SUCCEEDED = "succeeded"  # finished with output
    INCOMPLETE = "incomplete"  # stopped early (token limit); the output is partial
    REFUSED = "refused"  # the agent or a content filter declined
    FAILED = "failed"  # ended in error, or claims success without any output
    CANCELLED = "cancelled"  # stopped on request
    LOST = "lost"  # once acknowledged, now unknown to the server


PENDING = frozenset({Phase.QUEUED, Phase.RUNNING})
"""Keep polling."""

TERMINAL = frozenset(Phase) - PENDING
"""Waiting longer changes nothing. BLOCKED is among them: the job may still exist on the server."""


@dataclass(frozen=True)
class JobRef:
    """How to find one job again. Goes into trigger arguments and the ledger, so it holds no secret."""

    protocol: str
    """Name in the registry."""
    id: str
    """The server's own id, unquoted."""
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)
    """What else polling needs (an endpoint, a protocol version)."""

    def to_json(self) -> dict[str, JSON]:
        return {"protocol": self.protocol, "id": self.id, "extra": dict(self.extra)}

    @classmethod
    def from_json(cls, value: Mapping[str, JSON]) -> JobRef:
        """:raises InvalidRequest: not a stored reference."""
        protocol, id_ = value.get("protocol"), value.get("id")
        if not isinstance(protocol, str) or not isinstance(id_, str):
            raise InvalidRequest(f"a job reference needs 'protocol' and 'id' as text, got {sorted(value)}")
        return cls(protocol, id_, as_dict(value.get("extra")))


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job to submit.

    :raises InvalidRequest: the key cannot be an HTTP header value, or the input is neither text nor a list.
    """

    input: str | list[JSON]
    """The prompt, or a list of input items in the protocol's own form."""
    key: str
    """Idempotency key: the same for each send of the same job, another for each deliberate new job. At most
    256 printable ASCII characters without spaces."""
    model: str | None = None
    """Model or agent name; None leaves the choice to the server."""
    instructions: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, JSON] = field(default_factory=dict)
    """Further fields of the protocol's own request, passed on as given."""

    def __post_init__(self) -> None:
        if not isinstance(self.input, (str, list)):
            raise InvalidRequest(f"input must be text or a list, not {type(self.input).__name__}")
        key = self.key
        if not key or len(key) > _KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidRequest(f"the idempotency key must be 1-256 printable ASCII characters, got {key!r}")


@dataclass(frozen=True)
class Usage:
    """Tokens billed for a job; None = not reported. ``cost`` is in the server's currency, mostly USD."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None

    def to_json(self) -> dict[str, JSON]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: JSON) -> Usage | None:
        """Read a usage object in any common dialect; None when there is no number in it."""
        source = as_dict(value)
        given = _count(source, "input_tokens", "prompt_tokens", "inputTokens", "promptTokenCount")
        taken = _count(source, "output_tokens", "completion_tokens", "outputTokens", "candidatesTokenCount")
        total = _count(source, "total_tokens", "totalTokens", "totalTokenCount")
        if total is None and given is not None and taken is not None:
            total = given + taken
        cost = _number(source, "cost", "total_cost", "total_cost_usd", "cost_usd")
        usage = cls(given, taken, total, cost)
        return usage if usage != cls() else None


def _number(source: Mapping[str, JSON], *names: str) -> float | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18:
            return float(value)
    return None


def _count(source: Mapping[str, JSON], *names: str) -> int | None:
    value = _number(source, *names)
    return None if value is None else math.floor(value)


@dataclass(frozen=True)
class JobError:
    """Why a job did not succeed, in the server's words."""

    code: str | None = None
    message: str | None = None
    status: int | None = None
    """HTTP status of the reply that told it."""
    body: JSON = field(default=None, hash=False)
    """The error object as received, for the classifier."""

    def __post_init__(self) -> None:
        for name in ("code", "message", "body"):
            object.__setattr__(self, name, _storable_or_none(getattr(self, name)))

    def to_json(self) -> dict[str, JSON]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: JSON) -> JobError | None:
        source = as_dict(value)
        return cls(**{f.name: source.get(f.name) for f in dataclasses.fields(cls)}) if source else None


@dataclass(frozen=True)
class Snapshot:
    """One look at a job. Safe to store: text, data and artifacts hold nothing that a database refuses."""

    ref: JobRef | None
    """None only when the server finished the job at submit and gave it no id."""
    phase: Phase
    raw_status: str | None = None
    """The server's own word."""
    text: str | None = None
    data: JSON = field(default=None, hash=False)
    """The output as JSON object or array when it is one, else None."""
    artifacts: list[dict[str, JSON]] = field(default_factory=list, hash=False)
    """Outputs besides the text: ``{"name"?, "type"?, "text"? | "data"? | "url"? …}``."""
    error: JobError | None = None
    usage: Usage | None = None
    poll_after: float | None = None
    """Seconds to wait before the next poll, when the server or the protocol says so; 0 = ask now."""
    progress: str | None = None
    """A short remark on what the agent does now; at most 500 characters."""

    def __post_init__(self) -> None:
        for name in ("text", "data", "artifacts", "progress", "raw_status"):
            object.__setattr__(self, name, _storable_or_none(getattr(self, name)))
        if self.artifacts is None:
            object.__setattr__(self, "artifacts", [])
        if self.progress:
            object.__setattr__(self, "progress", self.progress[:_PROGRESS_LENGTH])

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL

    def without_output(self) -> Snapshot:
        """The same without text, data and artifacts: small enough for a trigger's event."""
        return dataclasses.replace(self, text=None, data=None, artifacts=[])

    def to_json(self) -> dict[str, JSON]:
        return {
            "ref": self.ref.to_json() if self.ref else None,
            "phase": self.phase.value,
            "raw_status": self.raw_status,
            "text": self.text,
            "data": self.data,
            "artifacts": self.artifacts,
            "error": self.error.to_json() if self.error else None,
            "usage": self.usage.to_json() if self.usage else None,
            "poll_after": self.poll_after,
            "progress": self.progress,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, JSON]) -> Snapshot:
        """:raises InvalidRequest: not a stored snapshot."""
        try:
            phase = Phase(value.get("phase"))
        except ValueError as e:
            raise InvalidRequest(f"not a stored job snapshot: phase {value.get('phase')!r}") from e
        return cls(
            ref=JobRef.from_json(value["ref"]) if value.get("ref") else None,
            phase=phase,
            raw_status=value.get("raw_status"),
            text=value.get("text"),
            data=value.get("data"),
            artifacts=as_list(value.get("artifacts")),
            error=JobError.from_json(value.get("error")),
            usage=Usage.from_json(value.get("usage")),
            poll_after=value.get("poll_after"),
            progress=value.get("progress"),
        )


def _storable_or_none(value: JSON) -> JSON:
    try:
        return storable(value)
    except ValueError:
        return None


def latch_cancelled(snapshot: Snapshot, *, cancel_seen: bool) -> Snapshot:
    """Keep CANCELLED once it was seen; the usage of the later reply is kept, it may be billed.

    Azure OpenAI was seen to turn ``cancelled`` into ``completed`` minutes later (Microsoft Q&A 2339607).
    """
    if not cancel_seen or snapshot.phase is Phase.CANCELLED:
        return snapshot
    return dataclasses.replace(
        snapshot.without_output(), phase=Phase.CANCELLED, error=None, poll_after=None, progress=None
    )


def lost(ref: JobRef, reply: HttpReply) -> Snapshot:
    """A job that the server once acknowledged and no longer knows."""
    message = f"the server no longer knows job {ref.id}: it was deleted, expired, or lost in a restart"
    error = JobError("lost", message, reply.status, as_dict(reply.json()).get("error"))
    return Snapshot(ref, Phase.LOST, str(reply.status), error=error)


def poll_now(ref: JobRef, raw_status: str) -> Snapshot:
    """The job exists and this reply says no more: the next poll, at once, tells where it is."""
    return Snapshot(ref, Phase.RUNNING, raw_status, poll_after=0.0)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What may be relied on."""

    cancel: bool = False
    """``cancel()`` gives a call."""
    idempotent_submit: bool = False
    """Submitting again with the same key gives the same job, never a second one."""
    find: bool = False
    """``find()`` gives a call that tells whether a job with this key exists."""
    output: bool = True
    """A finished job's snapshot holds its output."""


class AgentProtocol(ABC):
    """How to talk to one kind of agent server. Stateless: settings in, values out.

    Every ``parse_*`` raises :class:`TransientReply` for a reply that is no news (ask again) and
    :class:`JobRejected` for a refusal; ``submit`` raises :class:`InvalidRequest` for a request that the
    protocol cannot carry.
    """

    name: ClassVar[str]
    """Name in the registry and in each :class:`JobRef`."""

    min_poll_interval: float = 0.0
    """Seconds; polling faster than this gets the caller limited."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    def submit(self, req: JobRequest) -> HttpCall:
        """The call that creates the job."""

    @abstractmethod
    def parse_submit(self, reply: HttpReply) -> Snapshot:
        """Read the reply to ``submit``. The snapshot may be terminal already."""

    @abstractmethod
    def poll(self, ref: JobRef) -> HttpCall:
        """The call that looks at the job; never changes anything on the server."""

    @abstractmethod
    def parse_poll(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        """Read the reply to ``poll``. A job that the server once acknowledged and does not know is LOST.

        Use the snapshot's ``ref`` from then on: a server may have said that the result lies elsewhere.
        """

    def cancel(self, ref: JobRef) -> HttpCall | None:  # noqa: ARG002 - interface
        """The call that stops the job, or None when the protocol has none."""
        return None

    def parse_cancel(self, ref: JobRef, reply: HttpReply) -> Snapshot:
        """Read the reply to ``cancel``. PENDING with ``poll_after`` 0 means: poll to learn the outcome."""
        return self.parse_poll(ref, reply)

    def find(self, req: JobRequest) -> HttpCall | None:  # noqa: ARG002 - interface
        """The call that looks for a job with the request's key, or None when the protocol has none."""
        return None

    def parse_find(
        self,
        req: JobRequest,  # noqa: ARG002 - interface
        reply: HttpReply,
    ) -> Snapshot | None:
        """Read the reply to ``find``: a PENDING snapshot to poll at once, or None when there is no such job.

        None is a promise that submitting creates no second job; a server that cannot tell is JobRejected.
        """
        raise InvalidRequest(
            f"protocol {self.name!r} has no look-up by key: HTTP {reply.status} answers no call of it"
        )

    def ref(self, id_: str, **extra: Any) -> JobRef:
        """A reference to one of this protocol's jobs."""
        return JobRef(self.name, id_, extra)

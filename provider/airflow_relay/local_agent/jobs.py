"""One job of the agent server, and the states it passes through."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class JobStatus(str, Enum):
    """Statuses of the Responses API, as they stand on the wire."""

    QUEUED = "queued"
    """Accepted, no worker has taken it yet."""
    IN_PROGRESS = "in_progress"
    """A worker (or the configured latency) is at it."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    """Ended early, for example at ``max_output_tokens``; the partial text is in the output."""


TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.INCOMPLETE})
ACTIVE = frozenset({JobStatus.QUEUED, JobStatus.IN_PROGRESS})


@dataclass
class Job:
    """What the server knows of a job, without its input (which is read from the store when it runs)."""

    id: str
    """``resp_`` and 32 hexadecimal digits, made by the server."""
    model: str
    """As the client named it."""
    backend: str
    job: str
    """The name of the work inside the backend, for example ``write``."""
    created_at: int
    """Seconds since the epoch."""
    echo: dict[str, Any]
    """The request's settings that a response object repeats (metadata, store, instructions …)."""
    status: JobStatus = JobStatus.QUEUED
    idempotency_key: str | None = None
    fingerprint: str = ""
    """SHA-256 of the request body in canonical JSON."""
    output: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    incomplete_reason: str | None = None
    usage: dict[str, Any] | None = None
    completed_at: int | None = None
    faults: list[dict[str, Any]] = field(default_factory=list)
    """Fault switches bound to this job (tests only)."""
    polls: int = 0
    """GETs so far, counted only when the server was started with ``--allow-faults``."""

    @property
    def background(self) -> bool:
        return bool(self.echo.get("background"))

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    def to_record(self) -> dict[str, Any]:
        """A JSON-able form for the store."""
        record = asdict(self)
        record["status"] = self.status.value
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Job:
        return cls(**{**record, "status": JobStatus(record["status"])})

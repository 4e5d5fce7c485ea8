"""The OpenClaw gateway's A2A channel, with the habits of version 2026.9.6."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from airflow_relay.protocols.a2a import A2AProtocol
from airflow_relay.protocols.base import JobRequest


@dataclass(frozen=True, kw_only=True)
class OpenClawProtocol(A2AProtocol):
    """A2A 1.0 as OpenClaw speaks it: SendMessage and GetTask only.

    - 30 calls a minute and peer, polls included: never polled faster than every 5 seconds.
    - A failed model call is a completed task whose text begins with a warning sign: taken as FAILED.
    - A ``messageId`` that it has seen gives a task that works for ever: each submit gets a new one, so an
      unanswered submit cannot be repeated safely (no idempotent submit, no look-up).
    """

    name: ClassVar[str] = "openclaw"

    endpoint: str = "/a2a/v1"
    lookup: bool = False
    cancellable: bool = False
    fail_on_output: str = r"^\s*⚠"
    min_poll_interval: float = 5.0

    def _message_id(self, req: JobRequest) -> str:
        return f"{req.key[:64]}-{uuid.uuid4().hex}"

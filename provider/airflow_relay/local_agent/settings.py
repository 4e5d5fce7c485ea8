"""What the agent server is told on its command line."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_relay.local_agent.faults import Fault


@dataclass(frozen=True)
class Latency:
    """Time that each job takes on top of its work, in seconds: fixed, or spread between two bounds."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Latency:
        """``2`` or ``0.5:4``.

        :raises ValueError: not numbers, negative, or the bounds are swapped.
        """
        first, _, second = text.partition(":")
        low = float(first)
        high = float(second) if second else low
        if not 0 <= low <= high < float("inf"):
            raise ValueError("a latency is SECONDS or LOW:HIGH, not negative")
        return cls(low, high)

    def of(self, fingerprint: str) -> float:
        """Seconds for a job: the same for the same request, so that test runs repeat."""
        share = int.from_bytes(hashlib.sha256(fingerprint.encode()).digest()[:4], "big") / 0xFFFFFFFF
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free port, printed at start."""
    backends: tuple[str, ...] = ("extractive",)
    workers: int = 2
    """Jobs worked at in parallel; more wait as ``queued``. Latency takes no worker."""
    latency: Latency = Latency()
    state: str | None = None
    """SQLite file, or None: jobs are forgotten at the end of the process."""
    token: str | None = field(default=None, repr=False)
    """Bearer token of the API, or None: no authentication."""
    admin_token: str | None = field(default=None, repr=False)
    """Bearer token of ``/admin``; set if and only if faults are allowed."""
    faults: tuple[Fault, ...] = ()

    @property
    def faults_allowed(self) -> bool:
        return self.admin_token is not None

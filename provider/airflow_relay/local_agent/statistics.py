"""Counters that let a test say how many jobs were paid for. Since the start of the process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Statistics:
    requests: Counter[str] = field(default_factory=Counter)
    """posts, polls, cancels, deletes; replays: POSTs answered with an earlier job by its Idempotency-Key."""
    rejected_429: int = 0
    """POSTs and polls answered with 429, by any fault."""
    faults: Counter[str] = field(default_factory=Counter)
    """Strikes by fault kind."""
    active: Counter[str] = field(default_factory=Counter)
    """Unfinished jobs by job name, now."""
    max_active_by_job: dict[str, int] = field(default_factory=dict)
    created_by_job: Counter[str] = field(default_factory=Counter)
    max_active: int = 0
    """The most unfinished jobs at one time."""

    @property
    def active_now(self) -> int:
        return self.active.total()

    def job_started(self, job: str, *, created: bool) -> None:
        self.active[job] += 1
        if created:
            self.created_by_job[job] += 1
        self.max_active = max(self.max_active, self.active_now)
        self.max_active_by_job[job] = max(self.max_active_by_job.get(job, 0), self.active[job])

    def job_ended(self, job: str) -> None:
        self.active[job] -= 1

    def to_record(self) -> dict[str, Any]:
        return {
            "posts": self.requests["posts"],
            "polls": self.requests["polls"],
            "cancels": self.requests["cancels"],
            "deletes": self.requests["deletes"],
            "replays": self.requests["replays"],
            "rejected_429": self.rejected_429,
            "faults": dict(self.faults),
            "active": self.active_now,
            "max_active": self.max_active,
            "by_job": {
                job: {
                    "created": self.created_by_job[job],
                    "active": self.active[job],
                    "max_active": self.max_active_by_job.get(job, 0),
                }
                for job in sorted({*self.active, *self.created_by_job})
            },
        }

"""When to poll next, and when contact counts as lost. Pure; the trigger and the worker share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

JITTER: Final = 0.05
"""Polls come up to this share later than asked, so that jobs polled together drift apart."""
MAX_BACKOFF: Final = 4
"""After failures the interval doubles, up to this many times itself."""
SHORTEST: Final = 0.2
"""Seconds; a server that says "ask again at once" is not asked faster."""


@dataclass
class Pace:
    """The rhythm of one job's polls.

    :param interval: seconds between polls.
    :param deadline: after this, nobody polls any more.
    :param patience: how long polls may fail before contact counts as lost.
    :param spread: a source of numbers from 0 to 1.
    """

    interval: float
    deadline: datetime
    patience: timedelta
    spread: Callable[[], float]
    failing_since: datetime | None = None
    failures: int = 0

    def first(self, now: datetime, hint: float | None = None, since: datetime | None = None) -> float:
        """Seconds until the first poll: a full interval, since a trigger that fires at once is misread.

        :param since: when the task was deferred. A triggerer that takes over begins with thousands of old
            triggers in one moment: those are polled at any time within the next interval.
        """
        asked = max(self.interval, hint or 0.0)
        left = asked if since is None else asked - (now - since).total_seconds()
        if left <= 0:
            return self._bounded(self.interval * self.spread(), now, jitter=0.0)
        return self._bounded(min(left, asked), now)

    def after_answer(self, now: datetime, hint: float | None = None) -> float:
        """Seconds until the next poll, after one that was answered; ``hint``: what the server asked for."""
        self.failing_since, self.failures = None, 0
        if hint is None:
            return self._bounded(self.interval, now)
        # Only an explicit "now" makes it faster than the author asked for.
        return self._bounded(SHORTEST if hint == 0 else max(hint, self.interval), now)

    def after_failure(self, now: datetime, hint: float | None = None) -> float | None:
        """Seconds until the next poll, after one that was no news; ``None``: contact is lost."""
        if self.failing_since is None:
            self.failing_since = now
        if now - self.failing_since >= self.patience:
            return None
        self.failures += 1
        backoff = self.interval * min(2 ** (self.failures - 1), MAX_BACKOFF)
        return self._bounded(max(backoff, hint or 0.0), now)

    def _bounded(self, seconds: float, now: datetime, *, jitter: float = JITTER) -> float:
        spread = seconds * (1 + jitter * self.spread())
        return max(0.0, min(spread, (self.deadline - now).total_seconds()))

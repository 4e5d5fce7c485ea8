"""Simulated time: simpy counts seconds as floats, core wants aware datetimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any
from zoneinfo import ZoneInfo

import simpy
from croniter import croniter
from simpy.events import NORMAL


class Clock:
    """A simpy environment with a calendar, and callbacks instead of one process for each small step.

    Nearly all that happens in a simulation is such a callback. They have a queue of their own, since an event
    around each would cost more than most of them do; numbered and ordered as simpy numbers and orders events,
    so that the two kinds keep the order in which they were asked for.
    """

    def __init__(self, start: datetime) -> None:
        self.env = simpy.Environment()
        """For events and processes; time passes by :meth:`run_for` alone, which knows both queues."""
        self.start = start
        self.seconds = 0.0
        """Since the start."""
        self._number = self.env._eid.__next__  # noqa: SLF001 - one numbering, so that there is one order
        self._calls: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._known, self._now = 0.0, start

    def run_for(self, seconds: float) -> None:
        """Let so much time pass from the start; what is due at its very end does not happen any more."""
        env, calls, events = self.env, self._calls, self.env._queue  # noqa: SLF001 - to see what comes first
        while calls or events:
            if calls and not (events and events[0][:3] < calls[0][:3]):
                if calls[0][0] >= seconds:
                    break
                at, _, _, call, args = heappop(calls)
                self.seconds = at
                env._now = at  # noqa: SLF001 - for events that the call asks for
                call(*args)
            else:
                if events[0][0] >= seconds:
                    break
                self.seconds = events[0][0]
                env.step()
        self.seconds = seconds
        env._now = seconds  # noqa: SLF001 - as above

    def now(self) -> datetime:
        """The present moment, aware UTC."""
        if self._known != self.seconds:
            self._known, self._now = self.seconds, self.start + timedelta(seconds=self.seconds)
        return self._now

    def seconds_at(self, moment: datetime) -> float:
        return (moment - self.start).total_seconds()

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Call later; calls of one instant come in the order in which they were asked for."""
        at = self.seconds + seconds if seconds > 0 else self.seconds
        heappush(self._calls, (at, NORMAL, self._number(), call, args))

    def at(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Call at a time since the start; one that is past means now."""
        self.after(seconds - self.seconds, call, *args)

    def each(self, times: Iterator[float], call: Callable[[], None]) -> None:
        """Call at each of these times (ascending seconds since the start)."""

        def go() -> None:
            call()
            follow()

        def follow() -> None:
            moment = next(times, None)
            if moment is not None:
                self.at(moment, go)

        follow()


def cron_times(expression: str, start: datetime, days: int, zone: str = "UTC") -> Iterator[float]:
    """The fire times of a cron expression as seconds from ``start``, ``start`` included, for so many days."""
    local = start.astimezone(ZoneInfo(zone))
    end = days * 86_400.0
    ticks = croniter(expression, local - timedelta(seconds=1))
    while True:
        at = (ticks.get_next(datetime) - start).total_seconds()
        if at >= end:
            return
        yield at

"""Simulated time: simpy counts seconds as floats, core wants aware datetimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import simpy
from croniter import croniter


class Clock:
    """A simpy environment with a calendar, and callbacks instead of one process for each small step."""

    def __init__(self, start: datetime) -> None:
        self.env = simpy.Environment()
        self.start = start
        self._known, self._now = 0.0, start

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.env._now  # noqa: SLF001 - env.now is a property of the same

    def now(self) -> datetime:
        """The present moment, aware UTC."""
        seconds = self.env._now  # noqa: SLF001 - as above
        if self._known != seconds:
            self._known, self._now = seconds, self.start + timedelta(seconds=seconds)
        return self._now

    def seconds_at(self, moment: datetime) -> float:
        return (moment - self.start).total_seconds()

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Call later; calls of one instant come in the order in which they were asked for."""
        event = self.env.timeout(max(0, seconds))
        assert event.callbacks is not None
        event.callbacks.append(lambda _: call(*args))

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

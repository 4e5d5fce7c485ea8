"""What one simulated run looks like from outside: times, counts, and the curves of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from airflow_relay.simulation.sample import Sample

DAY: Final = 86_400.0
HOUR: Final = 3_600.0

LANES_MOST: Final = 60
"""Items of which the swim lanes are kept."""


@dataclass(slots=True)
class Bar:
    """A stretch of an item's lane, in seconds from the start."""

    stage: str
    begin: float
    end: float
    good: bool


@dataclass(slots=True)
class Lane:
    """An item's way, for the Gantt chart."""

    item: int
    key: str
    registered: float
    bars: list[Bar] = field(default_factory=list)
    finished: float | None = None
    how: str = ""


@dataclass(slots=True)
class _Journey:
    registered: float
    worked: float = 0.0
    missed: bool = False
    idle: bool = False
    lane: Lane | None = None


class Level:
    """A quantity that stays until it changes: its integral, and its mean of each hour for the first days."""

    __slots__ = ("_area", "_curve_end", "_hours", "_limit", "_since", "now")

    def __init__(self, hours: int) -> None:
        self.now = 0
        self._since = self._area = 0.0
        self._limit = hours
        self._curve_end = hours * HOUR
        self._hours = [0.0] * hours

    def change(self, by: int, at: float) -> None:
        if at != self._since:
            self._settle(at)
        self.now += by

    def _settle(self, at: float) -> None:
        since = self._since
        self._since = at
        if not self.now or at <= since:
            return
        self._area += self.now * (at - since)
        if since < self._curve_end:
            self._spread(since, at)

    def _spread(self, since: float, at: float) -> None:
        """The same over the hours of the curve."""
        hour = int(since // HOUR)
        while hour < self._limit and since < at:
            until = min(at, (hour + 1) * HOUR)
            self._hours[hour] += self.now * (until - since) / HOUR
            since, hour = until, hour + 1

    def mean(self, end: float) -> float:
        self._settle(end)
        return self._area / end if end else 0.0

    def hourly(self, end: float) -> list[float]:
        """Mean of each hour."""
        self._settle(end)
        return self._hours


class Recorder:
    """Collects; it decides nothing.

    :param days: length of the simulation; curves by hour are kept for 14 days at most.
    :param lanes_from: day from which the swim lanes are kept, with ``lanes_days`` days' items.
    """

    def __init__(self, days: int, *, lanes_from: int = 1, lanes_days: int = 2) -> None:
        self.days = days
        self._curve_hours = min(days, 14) * 24
        self._lanes = (lanes_from * DAY, (lanes_from + lanes_days) * DAY)
        self.journeys: dict[int, _Journey] = {}
        self.lanes: list[Lane] = []
        self.end_to_end = Sample()
        """Hours, registration → done."""
        self.work_share = Sample()
        """Working time ÷ end-to-end."""
        self.published = Counter[int]()
        """Day → items done."""
        self.same_day = Counter[int]()
        """Day → items that came and were done on it."""
        self.interventions = Counter[int]()
        self.registered = self.done = self.discarded = self.missed = 0
        self.runs = self.failed_runs = self.attempts = self.dead_letters = self.timeouts = 0
        self.tokens = self.wasted_tokens = self.wasted_seconds = 0.0
        self.stage_busy = Counter[str]()
        """Stage → hours of work."""
        self.limits: Mapping[str, int] = {}
        """Capacity key → limit, where there is one."""
        self.stage_wait: dict[str, Sample] = {}
        """Stage → hours from ready to start."""
        self.wip = Level(self._curve_hours)
        self.used: dict[str, Level] = {}
        self.queued: dict[str, Level] = {}
        """What waiting items wait for → how many."""
        self.polls = Sample()
        """Of an orchestrator, each night."""
        self.extra = Counter[str]()
        self.bad_days: frozenset[int] = frozenset()
        """Days on which some stage is down; set by whoever knows the scenario."""

    def register(self, item: int, key: str, at: float, *, idle: bool = False) -> None:
        """An item has come.

        :param idle: background work (P3): it is counted by itself and in no figure about items.
        """
        journey = self.journeys[item] = _Journey(at, idle=idle)
        if idle:
            return
        self.registered += 1
        self.wip.change(1, at)
        begin, end = self._lanes
        if begin <= at < end and len(self.lanes) < LANES_MOST:
            journey.lane = Lane(item, key, at)
            self.lanes.append(journey.lane)

    def ran(self, item: int, stage: str, begin: float, end: float, *, good: bool, tokens: float) -> None:
        """A stage's body has ended."""
        self.runs += 1
        self.stage_busy[stage] += (end - begin) / HOUR  # type: ignore[assignment] # a Counter of hours
        self.tokens += tokens
        if not good:
            self.failed_runs += 1
            self.wasted_tokens += tokens
            self.wasted_seconds += end - begin
        journey = self.journeys.get(item)
        if journey is None:
            return
        journey.worked += end - begin
        if journey.lane is not None:
            journey.lane.bars.append(Bar(stage, begin, end, good))

    def waited(self, stage: str, seconds: float) -> None:
        sample = self.stage_wait.get(stage)
        if sample is None:
            sample = self.stage_wait[stage] = Sample()
        sample.add(seconds / HOUR)

    def miss(self, item: int) -> None:
        """The item was not ready when the slot that was meant for it came."""
        self.journeys[item].missed = True

    def intervene(self, at: float) -> None:
        self.interventions[int(at // DAY)] += 1

    def finish(self, item: int, at: float, *, how: str) -> None:
        """The item is done, discarded or given up for good.

        :param how: ``"done"``, or another word for the lane.
        """
        journey = self.journeys.pop(item)
        if journey.idle:
            self.extra["idle_done"] += 1
            return
        self.wip.change(-1, at)
        self.missed += journey.missed
        if journey.lane is not None:
            journey.lane.finished, journey.lane.how = at, how
        if how != "done":
            self.discarded += 1
            return
        self.done += 1
        day = int(at // DAY)
        self.published[day] += 1
        self.same_day[day] += journey.registered // DAY == day
        took = at - journey.registered
        self.end_to_end.add(took / HOUR)
        if took > 0:
            self.work_share.add(journey.worked / took)

    def use(self, key: str, by: int, at: float) -> None:
        """Units of a capacity key were taken or freed."""
        level = self.used.get(key)
        if level is None:
            level = self.used[key] = Level(self._curve_hours)
        level.change(by, at)

    def waiting(self, counts: Counter[str], at: float) -> None:
        """How many ready items wait for what, from now on."""
        for reason in {*counts, *self.queued}:
            level = self.queued.get(reason)
            if level is None:
                level = self.queued[reason] = Level(self._curve_hours)
            by = counts.get(reason, 0) - level.now
            if by:
                level.change(by, at)

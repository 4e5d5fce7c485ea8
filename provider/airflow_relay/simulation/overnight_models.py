"""The third document: parallel tracks, and an orchestrator that wakes at a fixed time or polls.

Polling is decided by ``core.barrier.poll``, the function of the sensor in production.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_relay.core import barrier
from airflow_relay.core.barrier import Track, TrackPhase, TrackReport, TrackResult
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock
from airflow_relay.simulation.recorder import HOUR, Recorder
from airflow_relay.simulation.scenario import ModelKind, ModelSpec, Overnight, Scenario
from airflow_relay.simulation.work import Draw


@dataclass(frozen=True, slots=True)
class _Branch:
    """How a track goes, known in advance, in seconds from dispatch."""

    track: Track
    ends: float
    dies: bool

    def report(self, elapsed: float) -> TrackReport:
        if elapsed < self.ends:
            return TrackReport(TrackPhase.RUNNING, run_alive=True)
        if self.dies:
            return TrackReport(TrackPhase.RUNNING, run_alive=False)
        return TrackReport(TrackPhase.COMPLETE)


class OvernightModel:
    """One run each night."""

    def __init__(self, scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> None:
        assert scenario.overnight is not None
        self.spec: Overnight = scenario.overnight
        self.model, self.days = model, days
        self.clock = Clock(scenario.start)
        self.chance = Chance(seed)
        self.recorder = Recorder(days, lanes_from=0)
        self.settings = model.barrier()
        self._hours = {name: track.hours.quantile() for name, track in self.spec.tracks.items()}
        self._polls = Counter[int]()
        """Night → polls so far."""
        self._consolidation = self.spec.consolidation_hours.quantile()

    def run(self) -> Recorder:
        """Simulate all nights."""
        hour, minute = map(int, self.spec.start.split(":"))
        begin = (hour * 60 + minute) * 60.0
        self.clock.each((begin + night * 86_400 for night in range(self.days)), self._dispatch)
        self.clock.run_for((self.days + 1) * 86_400)
        return self.recorder

    def _dispatch(self) -> None:
        now = self.clock.seconds
        night = self.recorder.registered
        branches = [self._branch(night, place, name) for place, name in enumerate(self.spec.tracks)]
        self.recorder.register(night, f"night {night + 1}", now)
        for branch in branches:
            self.recorder.ran(
                night, branch.track.name, now, now + branch.ends, good=not branch.dies, tokens=0
            )
        if self.model.kind is ModelKind.FIXED_TIMER:
            assert self.model.timer_hours is not None
            self.clock.after(self.model.timer_hours.constant * HOUR, self._wake, night, branches, now)
        else:
            first = self.model.first_poll_hours.constant * HOUR
            self.clock.after(first, self._poll, night, branches, self.clock.now(), {})

    def _branch(self, night: int, place: int, name: str) -> _Branch:
        spec = self.spec.tracks[name]
        hours = self._hours[name](self.chance.at(Draw.TRACK, night, place))
        dies = self.chance.at(Draw.TRACK_DIES, night, place) < spec.dies.constant
        limit = None if spec.max_hours is None else timedelta(hours=spec.max_hours)
        return _Branch(Track(name, limit), hours * HOUR * (0.5 if dies else 1), dies)

    def _wake(self, night: int, branches: list[_Branch], dispatched: float) -> None:
        """The fixed timer looks once: incomplete state means that it bails out."""
        elapsed = self.clock.seconds - dispatched
        self._polls[night] += 1
        last = max(branch.ends for branch in branches)
        if elapsed < last or any(branch.dies for branch in branches):
            self.recorder.extra["bailed_out"] += 1
            self.recorder.polls.add(self._polls.pop(night))
            self.recorder.intervene(self.clock.seconds)
            self.recorder.finish(night, self.clock.seconds, how="bailed out")
            return
        self._consolidate(night, elapsed, last)

    def _poll(
        self, night: int, branches: list[_Branch], dispatched: datetime, finished: dict[str, TrackResult]
    ) -> None:
        now = self.clock.now()
        elapsed = (now - dispatched).total_seconds()
        decision = barrier.poll(
            [branch.track for branch in branches],
            dispatched,
            now,
            self.settings,
            reports={branch.track.name: branch.report(elapsed) for branch in branches},
            finished=finished,
        )
        self._polls[night] += 1
        self.recorder.extra["tapped_out"] += len(decision.tapped)
        if isinstance(decision, barrier.Wait):
            at = self.clock.seconds_at(decision.until)
            self.clock.at(at, self._poll, night, branches, dispatched, dict(decision.results))
            return
        if isinstance(decision, barrier.ForceProceed):
            self.recorder.extra["forced"] += 1
        self._consolidate(night, elapsed, min(elapsed, max(branch.ends for branch in branches)))

    def _consolidate(self, night: int, elapsed: float, last: float) -> None:
        self.recorder.waited("start", elapsed)
        self.recorder.waited("idle", elapsed - last)
        self.recorder.polls.add(self._polls.pop(night))
        hours = self._consolidation(self.chance.at(Draw.CONSOLIDATION, night))
        begin = self.clock.seconds
        self.clock.after(hours * HOUR, self._end, night, begin)

    def _end(self, night: int, begin: float) -> None:
        self.recorder.ran(night, "consolidation", begin, self.clock.seconds, good=True, tokens=0)
        self.recorder.finish(night, self.clock.seconds, how="done")

"""Before the dispatcher: processes on overlapping timers, none aware of the others, one agent service.

Each firing starts a whole cycle whatever else runs (second document, "Eleven Processes, Zero Awareness").
A phase that runs past the window is cut off and its work thrown away.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from airflow_relay.simulation.agent_service import AgentService, call_rounds
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.scenario import ModelSpec, Scenario, StageSpec, TimerSpec
from airflow_relay.simulation.work import StageWork


class BlindTimersModel:
    """The timers of one scenario; ``changes`` of the model are the "five-minute fixes"."""

    def __init__(self, scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> None:
        assert scenario.service is not None
        self.scenario, self.changes, self.days = scenario, model.changes, days
        self.clock = Clock(scenario.start)
        self.chance = Chance(seed)
        self.recorder = Recorder(days)
        self.service = AgentService(self.clock, scenario.service.capacity.constant)
        self._cycle = 0
        self._bodies = 0

    def run(self) -> Recorder:
        """Simulate all days."""
        articles = 0
        for name, spec in self.scenario.timers.items():
            offset = spec.offset_minutes.constant
            if spec.window_seconds is not None:
                offset = self.changes.get("offset_minutes", 0) * articles or offset
                articles += 1
            self._start(name, spec, offset * 60)
        self.clock.env.run(until=self.days * 86_400)
        self.recorder.extra["most_calls"] = self.service.most
        return self.recorder

    def _start(self, name: str, spec: TimerSpec, offset: float) -> None:
        phases = []
        for phase in spec.phases:
            phases.append(StageWork(self._bodies, self._changed(phase), self.chance, ()))
            self._bodies += 1
        window = None if spec.window_seconds is None else spec.window_seconds.constant
        if window is not None:
            window = self.changes.get("window_seconds", window)
        every, end = spec.every_minutes.constant * 60, self.days * 86_400
        times = (offset + every * n for n in range(int((end - offset) // every) + 1))
        self.clock.each(times, lambda: self._fire(name, phases, window))

    def _changed(self, phase: StageSpec) -> StageSpec:
        most = self.changes.get("rounds")
        if most is None or phase.calls is None:
            return phase
        kept = {v: w for v, w in (phase.calls.rounds.choice or {}).items() if v <= most}
        cut = sum(w for v, w in (phase.calls.rounds.choice or {}).items() if v > most)
        rounds = Quantity(choice={**kept, most: kept.get(most, 0) + cut})
        return phase.model_copy(update={"calls": phase.calls.model_copy(update={"rounds": rounds})})

    def _fire(self, name: str, phases: list[StageWork], window: float | None) -> None:
        self._cycle += 1
        if window is not None:
            self.recorder.extra["dispatches"] += 1
        self.clock.env.process(self._run(self._cycle, name, phases, window))

    def _run(
        self, cycle: int, name: str, phases: list[StageWork], window: float | None
    ) -> Generator[Any, Any, None]:
        article = window is not None
        begin = self.clock.seconds
        if article:
            self.recorder.register(cycle, name, begin)
        for phase in phases:
            started = self.clock.seconds
            done = True
            if phase.spec.calls is None:
                yield self.clock.env.timeout(phase.attempt(cycle, 1, started).seconds)
            else:
                done = yield from call_rounds(self.service, phase, cycle, 1, window=window)
            self.recorder.ran(
                cycle, phase.name, started, self.clock.seconds, good=done, tokens=phase.tokens
            )
            if not done:
                self.recorder.timeouts += 1
                if article:
                    self.recorder.finish(cycle, self.clock.seconds, how="timed out")
                return
        if article:
            self.recorder.finish(cycle, self.clock.seconds, how="done")

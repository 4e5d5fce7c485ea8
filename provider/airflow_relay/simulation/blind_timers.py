"""Before the dispatcher: processes on overlapping timers, none aware of the others, one agent service.

Each firing starts a whole cycle whatever else runs (second document, "Eleven Processes, Zero Awareness").
A phase that runs past the window is cut off and its work thrown away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any, Final

from airflow_relay.simulation.agent_service import AgentService, call_rounds
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.scenario import ModelSpec, Scenario, StageSpec, TimerSpec
from airflow_relay.simulation.work import StageWork

_TWO_HOURS: Final = 7200


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
        self._calls: Counter[int] = Counter()
        """Two-hour window → calls of phases under a time limit."""

    def run(self) -> Recorder:
        """Simulate all days."""
        limited = 0
        for name, spec in self.scenario.timers.items():
            offset = spec.offset_minutes.constant
            if spec.limited:
                offset = self.changes.get("offset_minutes", 0) * limited or offset
                limited += 1
            self._start(name, spec, offset * 60)
        self.clock.run_for(self.days * 86_400)
        self.recorder.extra["most_calls"] = self.service.most
        self.recorder.extra["calls_in_window"] = max(self._calls.values(), default=0)
        return self.recorder

    def _start(self, name: str, spec: TimerSpec, offset: float) -> None:
        phases = []
        for phase in spec.phases:
            phases.append(StageWork(self._bodies, self._changed(phase), self.chance, ()))
            self._bodies += 1
        every, end = spec.every_minutes.constant * 60, self.days * 86_400
        times = (offset + every * n for n in range(int((end - offset) // every) + 1))
        self.clock.each(times, lambda: self._fire(name, phases, counted=spec.limited))

    def _changed(self, phase: StageSpec) -> StageSpec:
        """The phase as a five-minute fix leaves it."""
        if phase.timeout_minutes is None:
            return phase
        changes: dict[str, Any] = {
            "timeout_minutes": self.changes.get("timeout_minutes", phase.timeout_minutes)
        }
        most = self.changes.get("rounds")
        if most is not None and phase.calls is not None:
            weights: dict[float, float] = {}
            rounds = phase.calls.rounds
            for number, weight in (rounds.choice or {rounds.constant: 1.0}).items():
                weights[min(number, most)] = weights.get(min(number, most), 0) + weight
            changes["calls"] = phase.calls.model_copy(update={"rounds": Quantity(choice=weights)})
        return phase.model_copy(update=changes)

    def _fire(self, name: str, phases: list[StageWork], *, counted: bool) -> None:
        self._cycle += 1
        if counted:
            self.recorder.extra["dispatches"] += 1
            self.recorder.register(self._cycle, name, self.clock.seconds)
        self.clock.env.process(self._run(self._cycle, phases, counted=counted))

    def _run(self, cycle: int, phases: list[StageWork], *, counted: bool) -> Generator[Any, Any, None]:
        done = True
        for phase in phases:
            begin = self.clock.seconds
            if phase.spec.calls is None:
                yield self.clock.env.timeout(phase.attempt(cycle, 1, begin).seconds)
            else:
                before = phase.rounds_begun
                done = yield from call_rounds(self.service, phase, cycle, 1, window=phase.timeout)
                self._count_calls(phase, before, begin)
            self.recorder.ran(cycle, phase.name, begin, self.clock.seconds, good=done, tokens=phase.tokens)
            if not done:
                self.recorder.timeouts += 1
                break
        if counted:
            self.recorder.finish(cycle, self.clock.seconds, how="done" if done else "timed out")

    def _count_calls(self, phase: StageWork, before: int, began: float) -> None:
        if phase.timeout is not None and phase.spec.calls is not None:
            calls = (phase.rounds_begun - before) * round(phase.spec.calls.parallel.constant)
            self._calls[int(began // _TWO_HOURS)] += calls

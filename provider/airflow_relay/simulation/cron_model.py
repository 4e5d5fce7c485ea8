"""Before Relay: every stage has fire times of its own and takes what is there when they come.

This model needs no rules of core, since it has none: a firing takes the items that wait in its stage's input
state, the oldest first. A run that fails leaves its item in "in progress", where no firing looks; a person
notices, and starts the stage by hand (first document, "Invisible stalls").
"""

from __future__ import annotations

from collections import deque

from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.simulation.arrivals import Source
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock, cron_times
from airflow_relay.simulation.people import Person
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.scenario import ModelSpec, Scenario
from airflow_relay.simulation.work import Attempt, StageWork, bodies, next_stage


class CronModel:
    """One pipeline on fixed schedules."""

    def __init__(self, scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> None:
        ((self.pipeline, self.spec),) = scenario.pipelines.items()
        self.model, self.days, self.start = model, days, scenario.start
        self.clock = Clock(scenario.start)
        self.chance = Chance(seed)
        self.recorder = Recorder(days)
        self.work = {stage: work for (_, stage), work in bodies(scenario, model, self.chance).items()}
        self.person = Person(scenario.people, self.chance)
        self.waiting: dict[str, deque[int]] = {stage.name: deque() for stage in self.spec.stages}
        self.slots = {name: self._fire_times(name) for name in self.work}
        self._since: dict[int, float] = {}
        self._tries: dict[int, dict[str, int]] = {}
        self._stuck: dict[int, int] = {}
        self._visits: dict[int, dict[str, int]] = {}
        self._meant: dict[int, float] = {}
        """Item → the slot that its present stage was meant to take it in."""
        self._number = 0
        self._source = Source(self.spec.arrivals, self.chance, 0)
        most = model.items_per_run
        self._most = None if most is None else round(most.constant)

    def _fire_times(self, stage: str) -> list[float]:
        times: set[float] = set()
        for expression in self.model.schedules.get(stage, ()):
            times.update(cron_times(expression, self.start, self.days + 2, self.spec.timezone))
        return sorted(times)

    def run(self) -> Recorder:
        """Simulate all days."""
        entry = next(s.name for s in self.spec.stages if s.schedule is not None)
        for stage, times in self.slots.items():
            self.clock.each(iter(times), lambda s=stage: self._fire(s, entry=s == entry))  # type: ignore[misc]
        self.clock.run_for(self.days * 86_400)
        return self.recorder

    def _fire(self, stage: str, *, entry: bool) -> None:
        now = self.clock.seconds
        self.recorder.extra["firings"] += 1
        if entry:
            for _ in self._source.found(now):
                self._number += 1
                self.recorder.register(self._number, f"{self.pipeline}/{self._number}", now)
                self._enter(self._number, stage, meant=now)
        line = self.waiting[stage]
        taken = len(line) if self._most is None else min(len(line), self._most)
        if not taken:
            self.recorder.extra["empty_firings"] += 1
        for _ in range(taken):
            self._begin(line.popleft(), stage)

    def _enter(self, item: int, stage: str, *, meant: float) -> None:
        """The item waits for a firing of the stage."""
        self.waiting[stage].append(item)
        self._since[item], self._meant[item] = self.clock.seconds, meant

    def _begin(self, item: int, stage: str) -> None:
        now = self.clock.seconds
        if now > self._meant[item] + 1:
            self.recorder.miss(item)
        self.recorder.waited(stage, now - self._since[item])
        self._run(item, stage, slot=now)

    def _run(self, item: int, stage: str, *, slot: float, again: bool = False) -> None:
        self.recorder.extra["dispatches"] += 1
        visits = self._visits.setdefault(item, {})
        visits[stage] = visits.get(stage, 0) + (again is False)
        work = self.work[stage]
        tries = self._tries.setdefault(item, {})
        tries[stage] = tries.get(stage, 0) + 1
        attempt = work.attempt(item, tries[stage], self.clock.seconds)
        self.clock.after(attempt.seconds, self._end, item, work, attempt, self.clock.seconds, slot)

    def _end(self, item: int, work: StageWork, attempt: Attempt, begin: float, slot: float) -> None:
        now, good = self.clock.seconds, attempt.error is None
        self.recorder.ran(item, work.name, begin, now, good=good, tokens=work.tokens)
        self.recorder.timeouts += attempt.error is ErrorClass.TIMEOUT
        if not good:
            self._stuck[item] = time = self._stuck.get(item, 0) + 1
            self.clock.at(self.person.acts_at(item, time, now), self._person, item, work, slot)
            return
        target = self._target(item, work, attempt.outcome)
        if target.startswith("@"):
            self._leave(item, "done" if target == "@done" else "discarded")
        elif self.slots[target]:
            self._enter(item, target, meant=self._slot_after(target, slot))
        else:
            self._run(item, target, slot=slot)

    def _target(self, item: int, work: StageWork, outcome: str | None) -> str:
        target = next_stage(work.spec, outcome)
        if target.startswith("@"):
            return target
        spec = self.work[target].spec
        used = self._visits[item].get(target, 0)
        return target if spec.max_visits is None or used < spec.max_visits else spec.after_max_visits

    def _slot_after(self, stage: str, slot: float) -> float:
        """The stage's first fire time behind the slot of the stage before: the one meant for the item."""
        return next((at for at in self.slots[stage] if at > slot), float("inf"))

    def _person(self, item: int, work: StageWork, slot: float) -> None:
        """A person has noticed the gap, looks into it and starts the stage by hand."""
        self.recorder.intervene(self.clock.seconds)
        if self.person.gives_up(item, self._stuck[item]):
            self._leave(item, "given up")
            return
        work.heal(item)
        self.recorder.miss(item)
        self._run(item, work.name, slot=max(slot, self.clock.seconds), again=True)

    def _leave(self, item: int, how: str) -> None:
        self.recorder.finish(item, self.clock.seconds, how=how)
        for known in (self._since, self._tries, self._stuck, self._visits, self._meant):
            known.pop(item, None)
        for work in self.work.values():
            work.heal(item)

"""Relay in simulated time: intakes, runs, the tick, the recovery sweep, and people, around :class:`World`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from airflow_relay.core import backpressure, lifecycle, recovery
from airflow_relay.core.breaker import BreakerSettings
from airflow_relay.core.completion import Completion
from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.core.finding import Finding, RecoveryAction, RunLiveness
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.obstacles import with_obstacles
from airflow_relay.core.rules import parse_rules
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import TERMINAL, EventKind, ItemState, PriorityClass, RunResult
from airflow_relay.simulation.agent_service import AgentService, call_rounds
from airflow_relay.simulation.arrivals import Source
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock, cron_times
from airflow_relay.simulation.people import Person
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.scenario import ModelSpec, Scenario
from airflow_relay.simulation.work import Attempt, Draw, StageWork, bodies
from airflow_relay.simulation.world import KnownPipeline, World

RESEND_AFTER: Final = 60.0
"""As ``ledger.runs.RESEND_AFTER``: a grant that is not confirmed after so long is sent again by the tick."""

_IDLE: Final = PriorityClass.P3
_SUCCESS: Final = Completion(RunResult.SUCCESS)


class RelayModel:
    """One scenario run by Relay's rules."""

    def __init__(self, scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> None:
        self.scenario, self.model, self.days = scenario, model, days
        self.clock = Clock(scenario.start)
        self.chance = Chance(seed)
        self.recorder = Recorder(days)
        self.rules = parse_rules(model.rules)[0]
        self.world = World(
            [KnownPipeline.from_json(s.pipeline(n).to_json()) for n, s in scenario.pipelines.items()],
            conditions=Conditions(limits=model.limits),
            breaker_settings=BreakerSettings(threshold=model.breaker_threshold),
            on_slot=lambda key, by: self.recorder.use(key, by, self.clock.seconds),
        )
        self.recorder.limits = self.world.limits
        self.work = bodies(scenario, model, self.chance)
        self.person = Person(scenario.people, self.chance)
        self.service = None
        if scenario.service is not None:
            self.service = AgentService(self.clock, scenario.service.capacity.constant)
        latency = scenario.latency
        self._start_seconds = self._drawn(latency.start_seconds, Draw.START)
        self._hand_off_seconds = self._drawn(latency.hand_off_seconds, Draw.HAND_OFF)
        self._lost, self._crashes = latency.lost_triggers.constant, latency.crashes.constant
        self._noticed_after = latency.noticed_after_minutes.constant * 60
        self._number = 0
        self._some_wait = False
        self._tries: dict[int, dict[int, int]] = {}
        self._stuck: dict[int, int] = {}
        self._unsent: dict[int, float] = {}
        """Runs whose trigger was lost → when it was sent."""
        self._died: dict[int, float] = {}
        """Runs that ended without telling → when Airflow knows."""
        self._tick_seconds = model.tick_minutes * 60
        self._granted_at_ticks = model.granted_at_ticks  # a field of a Pydantic model is slow to read
        self._ticks: set[float] = set()

    def run(self) -> Recorder:
        """Simulate all days."""
        start = self.scenario.start
        for index, (name, spec) in enumerate(self.scenario.pipelines.items()):
            pipeline = self.world.pipelines[name]
            source = Source(spec.arrivals, self.chance, index)
            times = cron_times(pipeline.entry.schedule or "", start, self.days, spec.timezone)
            self.clock.each(times, lambda n=name, s=source: self._intake(n, s))  # type: ignore[misc]
        if self.model.sweep_hours is not None:
            every = self.model.sweep_hours * 3600
            self.clock.each(_grid(every, self.days), self._sweep)
        if self._granted_at_ticks:
            self.clock.each(_grid(self._tick_seconds, self.days), self._tick)
        self.clock.run_for(self.days * 86_400)
        return self.recorder

    def _drawn(self, quantity: Quantity, purpose: int) -> Callable[[int], float]:
        """Run → its value; a constant costs no random number."""
        if quantity.value is not None:
            value = quantity.value
            return lambda _: value
        quantile, chance = quantity.quantile(), self.chance
        return lambda run_id: quantile(chance.at(purpose, run_id))

    # --- the faster path ----------------------------------------------------------------------------------

    def _intake(self, name: str, source: Source) -> None:
        world, now, at = self.world, self.clock.now(), self.clock.seconds
        pipeline = world.pipelines[name]
        if backpressure.must_wait(pipeline, world.in_progress(name)) is not None:
            self.recorder.extra["intakes_skipped"] += 1
            source.skip(at)
            return
        for appeared in source.found(at):
            self._number += 1
            world.register(pipeline, number=self._number, priority=source.priority(self._number), now=now)
            idle = pipeline.klass is PriorityClass.P3
            self.recorder.register(self._number, f"{name}/{self._number}", at, idle=idle)
            self.recorder.waited("intake", at - appeared)
        self._dispatch()

    def _dispatch(self, *, at_tick: bool = False) -> None:
        if self._granted_at_ticks and not at_tick:
            return
        now = self.clock.now()
        granted, wake = self.world.dispatch(now)
        for run in granted:
            self._send(run)
        if wake is not None:
            self._need_tick(self.clock.seconds_at(wake))
        if self.world.queue or self._some_wait:
            counts = self.world.waiting_for(now)
            self._some_wait = bool(counts)
            self.recorder.waiting(counts, self.clock.seconds)

    def _send(self, run: Run) -> None:
        """Trigger a granted run; a lost trigger is for the tick."""
        self.recorder.extra["idle_dispatches" if run.klass is _IDLE else "dispatches"] += 1
        if self._lost and self.chance.at(Draw.LOST, run.id) < self._lost:
            self.recorder.extra["lost_triggers"] += 1
            self._unsent[run.id] = self.clock.seconds
            self._need_tick(self.clock.seconds + RESEND_AFTER)
            return
        self._trigger(run)

    def _trigger(self, run: Run) -> None:
        seconds = self._start_seconds(run.id)
        if seconds > 0:
            self.clock.after(seconds, self._start, run.id)
        else:
            self._start(run.id)

    def _start(self, run_id: int) -> None:
        run, clock = self.world.runs[run_id], self.clock
        self.world.started(run, clock.now())
        if run.ready_since is not None:
            self.recorder.waited(run.stage, clock.seconds - clock.seconds_at(run.ready_since))
        work = self.work[(run.pipeline, run.stage)]
        tries = self._tries.setdefault(run.item_id, {})
        tries[work.index] = number = tries.get(work.index, 0) + 1
        if work.calls is not None:
            self.clock.env.process(self._calls(run, work, number))
            return
        attempt = work.attempt(run.item_id, number, self.clock.seconds)
        if self._crashes and self.chance.at(Draw.CRASH, run.id) < self._crashes:
            seconds = attempt.seconds * self.chance.at(Draw.CRASH_AT, run.id)
            self.clock.after(seconds, self._die, run.id, self.clock.seconds)
            return
        self._end_later(run, attempt)

    def _end_later(self, run: Run, attempt: Attempt) -> None:
        begin = self.clock.seconds
        delay = self._hand_off_seconds(run.id)
        self.clock.after(attempt.seconds + delay, self._end, run.id, attempt, begin, begin + attempt.seconds)

    def _calls(self, run: Run, work: StageWork, number: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        """A body made of agent calls: how long it takes depends on everything else that runs."""
        assert self.service is not None
        begin = self.clock.seconds
        error = work.own_error(run.item_id, number)
        done = yield from call_rounds(self.service, work, run.item_id, number, window=work.timeout)
        outcome = work.outcome(run.item_id, number)
        failed = error or (None if done else ErrorClass.TIMEOUT)
        attempt = work.meet(Attempt(self.clock.seconds - begin, failed, None if failed else outcome), begin)
        self._end(run.id, attempt, begin, self.clock.seconds)

    def _end(self, run_id: int, attempt: Attempt, begin: float, end: float) -> None:
        """The hand-off."""
        run = self.world.runs[run_id]
        work = self.work[(run.pipeline, run.stage)]
        good = attempt.error is None
        self.recorder.ran(run.item_id, run.stage, begin, end, good=good, tokens=work.tokens)
        if not good:
            self.recorder.timeouts += attempt.error is ErrorClass.TIMEOUT
        self._close(run, _completion(attempt))

    def _close(self, run: Run, completion: Completion) -> None:
        after = self.world.close(run, completion, self.clock.now())
        if (run.pipeline, run.stage) in self.world.tripped:
            self._watch_breaker(run)
        if after.state in TERMINAL:
            self._terminal(after)
        self._dispatch()

    def _terminal(self, item: Item) -> None:
        if item.state is ItemState.DEAD:
            self._dead(item)
        else:
            self._finish(item, "done" if item.state is ItemState.DONE else "discarded")

    def _watch_breaker(self, run: Run) -> None:
        """Of an open breaker: the tick after its pause lets the probe go."""
        probe_at = self.world.breakers[(run.pipeline, run.stage)].probe_at
        if probe_at is not None:
            self._need_tick(self.clock.seconds_at(probe_at))

    def _finish(self, item: Item, how: str) -> None:
        self.recorder.finish(item.id, self.clock.seconds, how=how)
        self.world.forget(item.id)
        self._tries.pop(item.id, None)
        self._stuck.pop(item.id, None)
        for work in self.work.values():
            if work.poisoned:
                work.heal(item.id)

    def _die(self, run_id: int, begin: float) -> None:
        """The run ends and tells nobody."""
        run = self.world.runs[run_id]
        tokens = self.work[(run.pipeline, run.stage)].tokens
        self.recorder.extra["crashes"] += 1
        self.recorder.ran(run.item_id, run.stage, begin, self.clock.seconds, good=False, tokens=tokens)
        self._died[run_id] = self.clock.seconds + self._noticed_after
        self._need_tick(self._died[run_id])

    # --- the tick, the sweep, people ----------------------------------------------------------------------

    def _need_tick(self, seconds: float) -> None:
        """Ticks come every few minutes; only those that find something to do are simulated."""
        at = math.ceil(max(seconds, self.clock.seconds + 1e-6) / self._tick_seconds) * self._tick_seconds
        if at not in self._ticks and not self._granted_at_ticks:
            self._ticks.add(at)
            self.clock.at(at, self._tick)

    def _tick(self) -> None:
        now = self.clock.seconds
        self._ticks.discard(now)
        for run_id, sent in list(self._unsent.items()):
            if now - sent >= RESEND_AFTER:
                del self._unsent[run_id]
                self._trigger(self.world.runs[run_id])
        for run_id, known in list(self._died.items()):
            if now >= known:
                del self._died[run_id]
                self._close(self.world.runs[run_id], Completion(RunResult.LOST))
        self._dispatch(at_tick=True)

    def _sweep(self) -> None:
        world, now = self.world, self.clock.now()
        stale = now - min([self.rules.default.stale, *(r.stale for r in self.rules.pipelines.values())])
        found = [i for i in map(world.items.__getitem__, sorted(world.failed)) if i.last_activity_at <= stale]
        found += [i for i in world.in_flight() if i.last_activity_at <= stale]
        if not found:
            return
        snapshot = world.snapshot_of(found, now)
        findings = with_obstacles(
            [self._finding(item) for item in found], snapshot=snapshot, rules=self.rules, now=now
        )
        for order, decision in enumerate(recovery.plan_sweep(findings, now=now, rules=self.rules)):
            item = world.items[decision.item_id]
            if decision.action is RecoveryAction.REFIRE:
                self._refire(item, decision.reason, order)
            elif decision.action is RecoveryAction.DEAD_LETTER:
                dead = {"state": ItemState.DEAD, "finished_at": now, "ready_since": None}
                change = Change(kind=EventKind.DEAD_LETTERED, at=now, text=decision.reason, set=dead)
                self._dead(world.perform(item, change))
        self._dispatch()

    def _finding(self, item: Item) -> Finding:
        run_id = self.world.run_of.get(item.id)
        if run_id is None:
            liveness = RunLiveness.NO_RUN
        else:
            liveness = RunLiveness.UNCONFIRMED if run_id in self._unsent else RunLiveness.ALIVE
        return Finding(
            item=item,
            liveness=liveness,
            run=None if run_id is None else self.world.runs[run_id],
            timezone=self.world.pipelines[item.pipeline].timezone,
        )

    def _refire(self, item: Item, why: str, order: int) -> None:
        pipeline, now = self.world.pipelines[item.pipeline], self.clock.now()
        change = lifecycle.recovered(item, pipeline=pipeline, text=why, now=now, order=order)
        self.world.perform(item, change)
        self.recorder.attempts += 1

    def _dead(self, item: Item) -> None:
        self.recorder.dead_letters += 1
        self._stuck[item.id] = time = self._stuck.get(item.id, 0) + 1
        self.clock.at(self.person.acts_at(item.id, time, self.clock.seconds), self._person, item.id)

    def _person(self, item_id: int) -> None:
        """A person decides about a dead letter."""
        item = self.world.items[item_id]
        self.recorder.intervene(self.clock.seconds)
        if self.person.gives_up(item_id, self._stuck[item_id]):
            self._finish(item, "given up")
            return
        self.work[(item.pipeline, item.stage)].heal(item_id)
        pipeline, now = self.world.pipelines[item.pipeline], self.clock.now()
        change = lifecycle.ready_again(
            item,
            pipeline=pipeline,
            kind=EventKind.REDRIVEN,
            text="Redriven by a person",
            now=now,
            **recovery.fresh_budget(),
        )
        self.world.perform(item, change)
        self._dispatch()


def _completion(attempt: Attempt) -> Completion:
    """What the hand-off tells."""
    if attempt.error is not None:
        return Completion(RunResult.FAILED, error_class=attempt.error.value)
    return _SUCCESS if attempt.outcome is None else Completion(RunResult.SUCCESS, attempt.outcome)


def _grid(every: float, days: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Multiples of ``every`` seconds within so many days."""
    number = 1
    while number * every < days * 86_400:
        yield number * every
        number += 1

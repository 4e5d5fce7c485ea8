"""The ledger of a simulation: it performs what core decides, in memory, as ``ledger/`` does in SQL.

Nothing is decided here. Each state change is a change from ``core.lifecycle`` or ``core.recovery``, each
grant one of ``core.dispatch``, each breaker step one of ``core.breaker``; a rule taken out there is gone
here as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from airflow_relay.core import breaker as breaker_rules
from airflow_relay.core import dispatch as dispatch_rules
from airflow_relay.core import lifecycle, recovery
from airflow_relay.core.breaker import Breaker, BreakerGate, BreakerSettings, BreakerState
from airflow_relay.core.capacity import free_units
from airflow_relay.core.completion import Completion
from airflow_relay.core.errors.taxonomy import RETRYABLE, ErrorClass
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Conditions, Group, Snapshot, StageKey
from airflow_relay.core.states import (
    AIRFLOW_RUNS_KEY,
    DEFAULT_AIRFLOW_RUNS,
    IN_FLIGHT,
    ItemState,
    PriorityClass,
    RunResult,
    RunState,
    WaitReason,
)
from airflow_relay.core.windows import closed_until
from airflow_relay.simulation.ready_queue import ReadyQueue
from airflow_relay.simulation.values import changed

_NEVER_TRIPPED = Breaker()

# Names of their own for what is asked at each move: Python looks an enum's members up slowly.
_READY, _FAILED = ItemState.READY, ItemState.FAILED
_RUNNING = {"state": ItemState.RUNNING}
_GRANTED = {"state": ItemState.GRANTED, "ready_since": None, "not_before": None}
_GOOD = (RunResult.SUCCESS, RunResult.SKIPPED)


class KnownPipeline(Pipeline):
    """A declaration that remembers its answers: a simulation asks for the same few a million times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [s.name for s in self.stages]
        answers: dict[str, dict[str, Any]] = {
            "rank": {n: self.rank(n) for n in names},
            "keys": {n: self.keys(n) for n in names},
            "dag_id": {n: self.dag_id(n) for n in names},
            "stage": {s.name: s for s in self.stages},
        }
        for method, known in answers.items():  # the instance's own, in front of the class's methods
            object.__setattr__(self, method, known.__getitem__)


class World:
    """Items, runs, slots and breakers at one moment.

    :param conditions: limits and holds as the Variables set them.
    :param on_slot: told of each unit of a limited key that is taken (+1) or freed (-1).
    """

    def __init__(
        self,
        pipelines: Iterable[Pipeline],
        *,
        conditions: Conditions,
        breaker_settings: BreakerSettings,
        on_slot: Callable[[str, int], None],
    ) -> None:
        self.pipelines = {p.name: p for p in pipelines}
        self.conditions = conditions
        self.settings = breaker_settings
        self.on_slot = on_slot
        limits = {AIRFLOW_RUNS_KEY: DEFAULT_AIRFLOW_RUNS}
        for pipeline in self.pipelines.values():
            limits.update(pipeline.declared_limits())
        self.limits: Mapping[str, int] = {**limits, **conditions.limits}
        self._windows = {
            (p.name, s.name): (s.window, p.timezone)
            for p in self.pipelines.values()
            for s in p.stages
            if s.window is not None
        }
        self.items: dict[int, Item] = {}
        self.queue = ReadyQueue()
        self.runs: dict[int, Run] = {}
        """Open runs only."""
        self.run_of: dict[int, int] = {}
        self.failed: set[int] = set()
        self.breakers: dict[StageKey, Breaker] = {}
        self.tripped: set[StageKey] = set()
        """Stages whose breaker is not closed."""
        self.usage: Counter[str] = Counter()
        self.active_classes: Counter[PriorityClass] = Counter()
        self._bare = Snapshot(
            usage=self.usage,
            limits=self.limits,
            conditions=conditions,
            active_classes=self.active_classes,
        )
        self._next_run = 0
        self._run_models: dict[StageKey, Run] = {}

    # --- items ------------------------------------------------------------------------------------------

    def register(self, pipeline: Pipeline, *, number: int, priority: int, now: datetime) -> Item:
        """A new item, ready for the entry stage."""
        item, _ = lifecycle.registered(pipeline=pipeline, key=str(number), priority=priority, now=now)
        item = changed(item, id=number)
        self.items[number] = item
        self.queue.add(item)
        return item

    def perform(self, item: Item, change: Change) -> Item:
        """Apply a change to the item; its place in the queue follows its state."""
        return self._move(item, change.at, change.set)

    def _move(self, item: Item, at: datetime, fields: Mapping[str, Any]) -> Item:
        before = item.state
        row = vars(item)  # in place, as SQL changes a row: copies would cost more than the rules
        row["last_activity_at"] = at
        row.update(fields)
        after = item.state
        if before is _READY:
            self.queue.remove(item.id)
        elif before is _FAILED:
            self.failed.discard(item.id)
        if after is _READY:
            self.queue.add(item)
        elif after is _FAILED:
            self.failed.add(item.id)
        return item

    def forget(self, item_id: int) -> None:
        """A finished item leaves the simulation, so that its memory does not grow."""
        del self.items[item_id]

    def in_progress(self, pipeline: str) -> Counter[str]:
        """Stage → items of the pipeline that are ready or in flight."""
        counts = Counter({stage: n for (name, stage), n in self.queue.counts() if name == pipeline})
        counts.update(run.stage for run in self.runs.values() if run.pipeline == pipeline)
        return counts

    # --- dispatch ---------------------------------------------------------------------------------------

    def snapshot(self, now: datetime, groups: list[Group]) -> Snapshot:
        """What the dispatcher looks at, no candidates loaded; breakers and windows of these groups alone."""
        aged = [group for group in groups if dispatch_rules.age(group.oldest, now)]
        return changed(
            self._bare,
            groups=groups,
            breakers=self._gates(groups, now) if self.tripped else {},
            closed_until=self._closed(groups, now) if self._windows else {},
            # Who holds what matters to reservations alone, and only what has aged reserves.
            running=[self.items[run.item_id].keys for run in self.runs.values()] if aged else (),
        )

    def _gates(self, groups: Iterable[Group], now: datetime) -> dict[StageKey, BreakerGate]:
        stages = {(g.pipeline, g.stage) for g in groups}
        return {s: breaker_rules.gate(self.breakers[s], now) for s in stages & self.tripped}

    def _closed(self, groups: Iterable[Group], now: datetime) -> dict[StageKey, datetime | None]:
        found: dict[StageKey, datetime | None] = {}
        for group in groups:
            stage = (group.pipeline, group.stage)
            if stage in self._windows:
                window, zone = self._windows[stage]
                found[stage] = closed_until(window, zone, now)
        return found

    def dispatch(self, now: datetime) -> tuple[list[Run], datetime | None]:
        """Decide and grant.

        :return: the new runs, and the next time at which a gate opens by itself.
        """
        groups = self.queue.groups()
        if not groups:
            return [], None
        snapshot = self.snapshot(now, groups)
        decision = dispatch_rules.Decision(snapshot, now)
        candidates = [
            candidate
            for group in groups
            if (most := decision.wanted(group))
            for candidate in self.queue.first(group, most, now)
        ]
        granted = decision.decide(candidates)
        closed = snapshot.closed_until
        wake = min((at for at in closed.values() if at is not None), default=None) if closed else None
        return [self._grant(grant.item_id, probe=grant.probe, now=now) for grant in granted], wake

    def _grant(self, item_id: int, *, probe: bool, now: datetime) -> Run:
        item = self.items[item_id]
        if item.recovering:
            zone = self.pipelines[item.pipeline].timezone
            self._move(item, now, recovery.charge(item, now=now, timezone=zone))
        self._next_run += 1
        epoch = item.epoch + 1
        run = changed(
            self._run_of(item),
            id=self._next_run,
            item_id=item_id,
            visit=item.visit,
            epoch=epoch,
            run_id=item.key,
            attempt=item.attempts,
            ready_since=item.ready_since,
            granted_at=now,
        )
        self._move(item, now, _GRANTED | {"epoch": epoch})
        self.runs[run.id] = run
        self.run_of[item_id] = run.id
        self._slots(item.keys, 1)
        self.active_classes[run.klass] += 1
        if probe:
            stage = (run.pipeline, run.stage)
            self._set_breaker(stage, breaker_rules.probe_granted(self.breakers[stage], run_id=run.id).breaker)
        return run

    def _run_of(self, item: Item) -> Run:
        """A run of the item's stage; made once a stage, what differs between its runs aside."""
        stage = (item.pipeline, item.stage)
        known = self._run_models.get(stage)
        if known is None:
            known = self._run_models[stage] = Run(
                id=0,
                item_id=0,
                pipeline=item.pipeline,
                stage=item.stage,
                visit=0,
                epoch=0,
                dag_id=item.dag_id,
                run_id="",
                ledger_id="simulation",
                state=RunState.OPEN,
                klass=item.klass,
                granted_at=item.registered_at,
            )
        return known

    def _slots(self, keys: Iterable[str], by: int) -> None:
        usage, limits = self.usage, self.limits
        for key in (*keys, AIRFLOW_RUNS_KEY):
            usage[key] += by
            if key in limits:
                self.on_slot(key, by)

    def started(self, run: Run, now: datetime) -> None:
        """The run's first guarded task begins."""
        vars(run)["started_at"] = now  # in place, as in ``_move``
        self._move(self.items[run.item_id], now, _RUNNING)

    # --- the end of a run -------------------------------------------------------------------------------

    def close(self, run: Run, completion: Completion, now: datetime) -> Item:
        """Close a run, free its slots, move its item; the caller dispatches afterwards."""
        del self.runs[run.id]
        del self.run_of[run.item_id]
        item = self.items[run.item_id]
        self._slots(item.keys, -1)
        self.active_classes[run.klass] -= 1
        if completion.result in _GOOD:
            pipeline = self.pipelines[run.pipeline]
            change = lifecycle.completed(item, pipeline=pipeline, run=run, completion=completion, now=now)
        else:
            retryable = ErrorClass(completion.error_class or ErrorClass.UNKNOWN) in RETRYABLE
            change = lifecycle.failed(run=run, completion=completion, retryable=retryable, now=now)
        stage = (run.pipeline, run.stage)
        before = self.breakers.get(stage, _NEVER_TRIPPED)
        after = breaker_rules.run_ended(
            before,
            result=completion.result,
            error_class=completion.error_class,
            run_id=run.id,
            now=now,
            settings=self.settings,
        ).breaker
        if after is not before:
            self._set_breaker(stage, after)
        return self.perform(item, change)

    def _set_breaker(self, stage: StageKey, breaker: Breaker) -> None:
        self.breakers[stage] = breaker
        if breaker.state is BreakerState.CLOSED:
            self.tripped.discard(stage)
        else:
            self.tripped.add(stage)

    # --- what waits -------------------------------------------------------------------------------------

    def waiting_for(self, now: datetime) -> Counter[str]:
        """What the ready items wait for, by capacity key or gate → how many."""
        counts: Counter[str] = Counter()
        groups = self.queue.groups()
        if not groups:
            return counts
        snapshot = self.snapshot(now, groups)
        for group in groups:
            gate = dispatch_rules.gate(group, snapshot, now)
            if gate is not None and gate is not WaitReason.SLOT:  # which is a key whose limit is 0
                counts[gate.value] += group.count
                continue
            for key in (*group.keys, AIRFLOW_RUNS_KEY):
                if free_units(key, snapshot) == 0:
                    counts[key] += group.count
        return counts

    def snapshot_of(self, items: Iterable[Item], now: datetime) -> Snapshot:
        """What the sweep asks its obstacles of: the same, with the gates of these items' stages."""
        snapshot = self.snapshot(now, self.queue.groups())
        stages = {(i.pipeline, i.stage) for i in items}
        known = {s: breaker_rules.gate(self.breakers[s], now) for s in stages & self.tripped}
        closed = {
            s: closed_until(window, zone, now) for s, (window, zone) in self._windows.items() if s in stages
        }
        return changed(
            snapshot,
            breakers={**snapshot.breakers, **known},
            closed_until={**snapshot.closed_until, **closed},
        )

    def in_flight(self) -> list[Item]:
        """Items with an open run."""
        return [i for run in self.runs.values() if (i := self.items[run.item_id]).state in IN_FLIGHT]

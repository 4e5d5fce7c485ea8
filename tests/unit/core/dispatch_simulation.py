"""A tiny event loop over the dispatcher: work becomes ready, runs for a known time, and frees its units."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tests.unit.core.dispatch_builders import as_a_ledger_loads, groups_of

from airflow_relay.core.dispatch import Candidate, Conditions, Plan, Snapshot, StageKey, dispatch
from airflow_relay.core.states import AIRFLOW_RUNS_KEY

Then = Callable[[], None]


@dataclass(frozen=True)
class Granted:
    """One visit of a stage, once it was granted."""

    candidate: Candidate
    at: datetime


@dataclass(frozen=True)
class Decision:
    """What a check looks at: the world just before a decision, and the plan."""

    now: datetime
    before: Counter[str]
    """Units in use."""
    waiting: dict[int, Candidate]
    running: dict[int, Candidate]
    plan: Plan


class Simulation:
    """Drive :func:`dispatch` as the ledger does: at each change, with only the wanted candidates loaded.

    :param tell_runs: whether the dispatcher is told the keys of each open run.
    """

    def __init__(self, *, start: datetime, limits: dict[str, int], tell_runs: bool = True) -> None:
        self.now, self.limits, self.tell_runs = start, limits, tell_runs
        self.conditions = Conditions()
        self.breakers: dict[StageKey, Any] = {}
        self.waiting: dict[int, Candidate] = {}
        self.running: dict[int, Candidate] = {}
        self.history: list[Granted] = []
        self.checks: list[Callable[[Decision], None]] = []
        self._work: dict[int, tuple[timedelta, Then | None]] = {}
        self._events: list[tuple[datetime, int, Then]] = []
        self._count = 0

    def at(self, when: datetime, do: Then) -> None:
        """Have something happen; a decision follows, as after each change."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, do))

    def ready(self, candidate: Candidate, minutes: float, then: Then | None = None) -> None:
        """A stage of an item is ready now, will run so long, and then something follows."""
        self._count += 1
        candidate = replace(candidate, item_id=self._count, ready_since=self.now)
        self.waiting[candidate.item_id] = candidate
        self._work[candidate.item_id] = (timedelta(minutes=minutes), then)

    def run(self, until: datetime | None = None) -> None:
        while self._events and (until is None or self._events[0][0] <= until):
            self.now, _, do = heapq.heappop(self._events)
            do()
            self._decide()

    def used(self) -> Counter[str]:
        return Counter(key for c in self.running.values() for key in (*c.keys, AIRFLOW_RUNS_KEY))

    def _decide(self) -> None:
        before = self.used()
        full = Snapshot(
            candidates=tuple(self.waiting.values()),
            groups=groups_of(self.waiting.values(), self.now),
            usage=before,
            limits=self.limits,
            conditions=self.conditions,
            breakers=self.breakers,
            active_classes=Counter(c.klass for c in self.running.values()),
            running=[c.keys for c in self.running.values()] if self.tell_runs else (),
        )
        plan = dispatch(as_a_ledger_loads(full, self.now), self.now)
        decision = Decision(self.now, before, dict(self.waiting), dict(self.running), plan)
        for check in self.checks:
            check(decision)
        for grant in plan.grants:
            self._start(self.waiting.pop(grant.item_id))

    def _start(self, candidate: Candidate) -> None:
        self.running[candidate.item_id] = candidate
        self.history.append(Granted(candidate, self.now))
        duration, then = self._work[candidate.item_id]

        def end() -> None:
            del self.running[candidate.item_id]
            if then is not None:
                then()

        self.at(self.now + duration, end)

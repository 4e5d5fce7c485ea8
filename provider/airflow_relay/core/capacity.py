"""Capacity keys: what is in use, what is free, what comes free together, and who must not share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_relay.core.pipeline import Pipeline, PipelineError
from airflow_relay.core.snapshot import Snapshot
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, DEFAULT_AIRFLOW_RUNS, PriorityClass


def limit_of(key: str, snapshot: Snapshot) -> int | None:
    """The effective limit of a key; None when it has none."""
    return snapshot.limits.get(key, DEFAULT_AIRFLOW_RUNS if key == AIRFLOW_RUNS_KEY else None)


def free_units(key: str, snapshot: Snapshot) -> int | None:
    """What is free of a key; None when it has no limit.

    A limit that was lowered below what is in use drains: nothing is free, and nothing is stopped.
    """
    limit = limit_of(key, snapshot)
    return None if limit is None else max(0, limit - snapshot.usage.get(key, 0))


def check_shared_keys(pipelines: Iterable[Pipeline], limits: Mapping[str, int] | None = None) -> None:
    """Refuse idle work (P3) that shares a limited key with a more urgent pipeline.

    P3 is not preempted: a unit that it holds would make urgent work wait for idle work.

    :param limits: effective limits beside the declared ones (``relay_limits``).
    :raises PipelineError: names both pipelines, the key and the cure, one problem a line.
    """
    known = list(pipelines)
    limited = {key for p in known for key in p.declared_limits()} | set(limits or ())
    keys = {p.name: {k for s in p.stages for k in p.keys(s.name)} & limited for p in known}
    problems = [
        f"Pipeline {idle.name!r} (P3) shares the limited key {key!r} with {urgent.name!r} "
        f"({urgent.klass.value}): idle work is not preempted and would hold it up. "
        "Give the P3 stages a key of their own."
        for idle in known
        if idle.klass is PriorityClass.P3
        for urgent in known
        if urgent.klass is not PriorityClass.P3
        for key in sorted(keys[idle.name] & keys[urgent.name])
    ]
    if problems:
        raise PipelineError("\n".join(problems))


class Room:
    """Free units of limited keys while a plan grows; each grant takes from them."""

    def __init__(self, snapshot: Snapshot) -> None:
        limits, usage = snapshot.limits, snapshot.usage
        if AIRFLOW_RUNS_KEY not in limits:
            limits = {**limits, AIRFLOW_RUNS_KEY: DEFAULT_AIRFLOW_RUNS}
        self.free: dict[str, int] = {}
        for key, limit in limits.items():
            left = limit - usage.get(key, 0)
            self.free[key] = max(0, left)
        self._usage, self._running = usage, snapshot.running
        self._taken: list[tuple[str, ...]] = []

    @property
    def full(self) -> bool:
        return self.free[AIRFLOW_RUNS_KEY] <= 0

    def limited(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key in self.free]

    def short(self, keys: Iterable[str]) -> list[str]:
        free = self.free
        return [key for key in keys if key in free and free[key] <= 0]

    def take(self, keys: tuple[str, ...]) -> None:
        free, taken = self.free, (*keys, AIRFLOW_RUNS_KEY)
        for key in taken:
            if key in free:
                free[key] -= 1
        self._taken.append(taken)

    def used(self, key: str) -> int:
        """Units that runs hold, those that the plan has granted included."""
        return self._usage.get(key, 0) + sum(keys.count(key) for keys in self._taken)

    def comes_along(self, key: str, missing: Iterable[str]) -> bool:
        """Whether each run that holds a missing key holds ``key`` as well, so that both come free at once."""
        for other in missing:
            holders = [keys for keys in (*self._running, *self._taken) if other in keys]
            if len(holders) < self.used(other) or not all(key in keys for keys in holders):
                return False
        return True

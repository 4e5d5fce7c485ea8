"""Capacity keys: what is in use, what is free, and what comes free together."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_relay.core.snapshot import Snapshot
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, DEFAULT_AIRFLOW_RUNS


def limit_of(key: str, snapshot: Snapshot) -> int | None:
    """The effective limit of a key; None when it has none."""
    return snapshot.limits.get(key, DEFAULT_AIRFLOW_RUNS if key == AIRFLOW_RUNS_KEY else None)


def free_units(key: str, snapshot: Snapshot) -> int | None:
    """What is free of a key; None when it has no limit.

    A limit that was lowered below what is in use drains: nothing is free, and nothing is stopped.
    """
    limit = limit_of(key, snapshot)
    return None if limit is None else max(0, limit - snapshot.usage.get(key, 0))


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

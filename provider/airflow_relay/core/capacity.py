"""Capacity keys: what is in use, what is free, and what comes free together."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from airflow_relay.core.snapshot import Snapshot
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, DEFAULT_AIRFLOW_RUNS


class Room:
    """Free units of limited keys while a plan grows; each grant takes from them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.limits = {AIRFLOW_RUNS_KEY: DEFAULT_AIRFLOW_RUNS, **snapshot.limits}
        self.used = {key: snapshot.usage.get(key, 0) for key in self.limits}
        # A limit that was lowered below what is in use drains: nothing is free, nothing is stopped.
        self.free = {key: max(0, limit - self.used[key]) for key, limit in self.limits.items()}
        self.holders = [frozenset(keys) for keys in snapshot.running]

    @property
    def full(self) -> bool:
        return self.free[AIRFLOW_RUNS_KEY] <= 0

    def limited(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key in self.free and key != AIRFLOW_RUNS_KEY]

    def most(self, keys: Iterable[str]) -> int:
        """How many items with these keys there is room for."""
        return min((self.free.get(key, sys.maxsize) for key in (*keys, AIRFLOW_RUNS_KEY)), default=0)

    def short(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if self.free.get(key, 1) <= 0]

    def take(self, keys: tuple[str, ...]) -> None:
        for key in (*keys, AIRFLOW_RUNS_KEY):
            if key in self.free:
                self.free[key] -= 1
                self.used[key] += 1
        self.holders.append(frozenset(keys))

    def comes_along(self, key: str, missing: Iterable[str]) -> bool:
        """Whether each run that holds a missing key holds ``key`` as well, so that both come free at once."""
        for other in missing:
            holders = [keys for keys in self.holders if other in keys]
            if len(holders) < self.used[other] or not all(key in keys for keys in holders):
                return False
        return True

"""A distribution that is being observed, in bounded memory."""

from __future__ import annotations

import random
from typing import Final

KEPT: Final = 20_000
"""Up to so many values all are kept; of more, a uniform choice of so many (reservoir sampling)."""


class Sample:
    """Observed values: count, mean and range are exact; quantiles are exact up to :data:`KEPT` values."""

    __slots__ = ("_kept", "_random", "_sorted", "count", "high", "low", "total")

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.low, self.high = float("inf"), float("-inf")
        self._kept: list[float] = []
        self._sorted = True
        self._random = random.Random(0)  # noqa: S311 - which values are kept is no secret

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if not self.low <= value <= self.high:
            self.low, self.high = min(self.low, value), max(self.high, value)
        if len(self._kept) < KEPT:
            self._kept.append(value)
            self._sorted = False
            return
        place = int(self._random.random() * self.count)
        if place < KEPT:
            self._kept[place] = value
            self._sorted = False

    def merge(self, other: Sample) -> None:
        """Take in another sample's values."""
        for value in other.values:
            self.add(value)

    @property
    def values(self) -> list[float]:
        """The kept values in ascending order."""
        if not self._sorted:
            self._kept.sort()
            self._sorted = True
        return self._kept

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else float("nan")

    def quantile(self, share: float) -> float:
        """The value that ``share`` of all do not exceed, interpolated; NaN when nothing was observed."""
        values = self.values
        if not values:
            return float("nan")
        place = share * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (place - below)

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

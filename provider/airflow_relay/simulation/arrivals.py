"""How work comes to an intake."""

from __future__ import annotations

import math

from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.scenario import Arrivals
from airflow_relay.simulation.work import Draw


class Source:
    """What one pipeline's intakes find."""

    def __init__(self, spec: Arrivals, chance: Chance, index: int) -> None:
        self._chance, self._index = chance, index
        self._per_intake = None if spec.per_intake is None else spec.per_intake.quantile()
        self._gap = None if spec.per_day is None else _gap(spec.per_day.constant)
        self._priority = spec.priority.quantile()
        self._intakes = self._appeared = 0
        self._left: list[float] = []
        self._next = math.inf
        if self._gap is not None:
            self._next = self._wait()

    def found(self, now: float) -> list[float]:
        """When each item that is there now appeared, in seconds; each is found once."""
        self.skip(now)
        found, self._left = self._left, []
        return found

    def skip(self, now: float) -> None:
        """An intake that does nothing: what it would have found is left for the next one."""
        self._intakes += 1
        if self._per_intake is not None:
            number = self._per_intake(self._chance.at(Draw.ARRIVALS, self._index, self._intakes))
            self._left += [now] * round(number)
            return
        while self._next <= now:
            self._left.append(self._next)
            self._next += self._wait()

    def priority(self, item: int) -> int:
        return round(self._priority(self._chance.at(Draw.PRIORITY, self._index, item)))

    def _wait(self) -> float:
        assert self._gap is not None
        self._appeared += 1
        return -math.log(self._chance.at(Draw.ARRIVALS, self._index, self._appeared)) * self._gap


def _gap(per_day: float) -> float:
    return 86_400 / per_day if per_day > 0 else math.inf

"""One agent service that all calls share: at full speed up to its capacity, beyond it everything is slower.

The model is processor sharing: ``n`` calls at once each run at ``min(1, capacity / n)`` of full speed. It is
the simplest one in which more parallel work makes each call longer, which is what the second document
reports; how real services slow down differs (queues, rate limits).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import simpy

from airflow_relay.simulation.clock import Clock
from airflow_relay.simulation.work import Draw, StageWork

_NOTHING: Final = 1e-6


class AgentService:
    """Calls in progress, with the work that is left of each."""

    def __init__(self, clock: Clock, capacity: float) -> None:
        self.clock, self.capacity = clock, capacity
        self.most = 0
        """The most calls at once so far."""
        self._left: dict[simpy.Event, float] = {}
        self._since = 0.0
        self._turn = 0

    def call(self, seconds: float) -> simpy.Event:
        """Begin a call that takes so long at full speed; the event comes when it is answered."""
        self._progress()
        answered = simpy.Event(self.clock.env)
        self._left[answered] = seconds
        self.most = max(self.most, len(self._left))
        self._plan()
        return answered

    def drop(self, calls: list[simpy.Event]) -> None:
        """Calls whose caller has gone."""
        self._progress()
        for call in calls:
            self._left.pop(call, None)
        self._plan()

    @property
    def speed(self) -> float:
        return min(1.0, self.capacity / len(self._left)) if self._left else 1.0

    def _progress(self) -> None:
        passed = (self.clock.seconds - self._since) * self.speed
        self._since = self.clock.seconds
        for call in self._left:
            self._left[call] -= passed

    def _plan(self) -> None:
        self._turn += 1
        if self._left:
            self.clock.after(min(self._left.values()) / self.speed, self._answer, self._turn)

    def _answer(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._progress()
        for call in [c for c, left in self._left.items() if left <= _NOTHING]:
            del self._left[call]
            call.succeed()
        self._plan()


def call_rounds(
    service: AgentService, work: StageWork, item: int, number: int, *, window: float | None
) -> Generator[Any, Any, bool]:
    """A body of rounds of parallel calls; each round waits for all of its calls.

    :param window: seconds after which it is cut off, its results thrown away.
    :return: whether it got through. ``work.rounds_begun`` counts the rounds.
    """
    spec = work.spec.calls
    assert spec is not None
    env, chance = service.clock.env, work.chance
    seconds = work.call_seconds
    end = None if window is None else env.timeout(window)
    rounds = round(work.rounds(chance.at(Draw.ROUNDS, item, work.index, number)))
    for turn in range(rounds):
        work.rounds_begun += 1
        calls = [
            service.call(seconds(chance.at(Draw.TIME, item, work.index, number, turn, place)))
            for place in range(round(spec.parallel.constant))
        ]
        everything = env.all_of(calls)
        yield everything if end is None else everything | end
        if not everything.triggered:
            service.drop(calls)
            return False
    return True

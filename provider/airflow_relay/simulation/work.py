"""What the bodies of stages do in a simulation: how long they take, how they fail, what they decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from airflow_relay.core.errors.taxonomy import NOT_RETRYABLE, ErrorClass
from airflow_relay.core.pipeline import DEFAULT_OUTCOME
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.scenario import ModelSpec, Outage, Scenario, StageSpec

StageKey = tuple[str, str]


class Draw:
    """What a random number is for; part of its name. Plain numbers: those of an enum are slow to mix."""

    TIME: Final = 1
    FAILS: Final = 2
    CLASS: Final = 3
    FAILED_TIME: Final = 4
    OUTCOME: Final = 5
    START: Final = 6
    LOST: Final = 7
    CRASH: Final = 8
    CRASH_AT: Final = 9
    NOTICE: Final = 10
    GIVES_UP: Final = 11
    ARRIVALS: Final = 12
    PRIORITY: Final = 13
    HAND_OFF: Final = 14
    ROUNDS: Final = 15
    TRACK: Final = 16
    TRACK_DIES: Final = 17
    CONSOLIDATION: Final = 18


class Attempt(NamedTuple):
    """One run of a body, known in advance: nothing that happens meanwhile changes it.

    :param seconds: until it ends.
    :param error: ``None`` for a success.
    :param outcome: of a router's success.
    """

    seconds: float
    error: ErrorClass | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class _Down:
    """An outage on the time axis, in seconds."""

    begin: float
    end: float
    every: float | None
    error: ErrorClass
    notice: float

    def hits(self, begin: float, end: float) -> float | None:
        """When a run in this stretch of time first meets the outage; ``None`` when it does not."""
        down, up = self.begin, self.end
        if self.every is not None and begin >= up:
            cycles = int((begin - up) // self.every) + 1
            down, up = down + cycles * self.every, up + cycles * self.every
        return max(begin, down) if begin < up and end > down else None


class StageWork:
    """The body of one stage."""

    def __init__(
        self, index: int, spec: StageSpec, chance: Chance, outages: Iterable[Outage], *, fails: bool = True
    ) -> None:
        self.index, self.spec, self.name = index, spec, spec.name
        self.chance = chance
        self.tokens = spec.tokens.constant
        self.timeout = None if spec.timeout_minutes is None else spec.timeout_minutes * 60
        self._minutes = (spec.minutes or Quantity(value=0)).quantile()
        self._failed_minutes = (spec.failure_minutes or spec.minutes or Quantity(value=0)).quantile()
        self._failure_rate = spec.failure_rate.constant if fails else 0.0
        classes = spec.failure_classes
        self._classes = list(classes)
        self._which = Quantity(choice={float(n): w for n, w in enumerate(classes.values())}).quantile()
        self.calls = calls = spec.calls
        self.rounds = (calls.rounds if calls else Quantity(value=0)).quantile()
        self.call_seconds = (calls.seconds if calls else Quantity(value=0)).quantile()
        self._outcomes = list(spec.outcomes)
        shares = {float(n): q.constant for n, q in enumerate(spec.outcomes.values())}
        self._outcome = Quantity(choice=shares).quantile() if shares else None
        self._outages = [
            _Down(
                begin=o.at_hours.constant * 3600,
                end=(o.at_hours.constant + o.hours.constant) * 3600,
                every=None if o.every_days is None else o.every_days.constant * 86_400,
                error=o.error_class,
                notice=o.fails_after_minutes.constant * 60,
            )
            for o in outages
        ]
        self.rounds_begun = 0
        """Rounds of agent calls so far."""
        self.poisoned: dict[int, ErrorClass] = {}
        """Items that fail here again and again with the same error, until a person has changed them."""

    def attempt(self, item: int, number: int, begin: float) -> Attempt:
        """The ``number``-th run (from 1) for this item, beginning now."""
        error = self.own_error(item, number)
        if error is None:
            seconds = self._minutes(self.chance.at(Draw.TIME, item, self.index, number)) * 60
            attempt = Attempt(seconds, None, None if self._outcome is None else self.outcome(item, number))
        else:
            seconds = self._failed_minutes(self.chance.at(Draw.FAILED_TIME, item, self.index, number)) * 60
            attempt = Attempt(seconds, error)
        return self.meet(attempt, begin)

    def meet(self, attempt: Attempt, begin: float) -> Attempt:
        """The attempt as outages and the stage's timeout leave it."""
        for outage in self._outages:
            met = outage.hits(begin, begin + attempt.seconds)
            if met is not None:
                attempt = Attempt(met + outage.notice - begin, outage.error)
                break
        if self.timeout is not None and attempt.seconds > self.timeout:
            return Attempt(self.timeout, ErrorClass.TIMEOUT)
        return attempt

    def own_error(self, item: int, number: int) -> ErrorClass | None:
        """How this run fails by itself, outages and timeouts aside."""
        again = self.poisoned.get(item) if self.poisoned else None
        if again is not None:
            return again
        if (
            not self._failure_rate
            or self.chance.at(Draw.FAILS, item, self.index, number) > self._failure_rate
        ):
            return None
        error = self._classes[int(self._which(self.chance.at(Draw.CLASS, item, self.index, number)))]
        if error in NOT_RETRYABLE:
            self.poisoned[item] = error
        return error

    def outcome(self, item: int, number: int) -> str | None:
        """A router's decision."""
        if self._outcome is None:
            return None
        return self._outcomes[int(self._outcome(self.chance.at(Draw.OUTCOME, item, self.index, number)))]

    def heal(self, item: int) -> None:
        """A person has changed the item, or it has left."""
        self.poisoned.pop(item, None)


def bodies(scenario: Scenario, model: ModelSpec, chance: Chance) -> dict[StageKey, StageWork]:
    """The bodies of all stages."""
    only = len(scenario.pipelines) == 1
    found: dict[StageKey, StageWork] = {}
    for pipeline, spec in scenario.pipelines.items():
        for stage in spec.stages:
            names = {f"{pipeline}.{stage.name}"} | ({stage.name} if only else set())
            outages = [o for o in scenario.outages if o.stage in names]
            work = StageWork(len(found), stage, chance, outages, fails=model.failures)
            found[(pipeline, stage.name)] = work
    return found


def next_stage(spec: StageSpec, outcome: str | None) -> str:
    """Where a stage leads in a model that does without core."""
    routes: Mapping[str, str] = spec.to if isinstance(spec.to, dict) else {DEFAULT_OUTCOME: spec.to}
    return routes[outcome if outcome is not None and outcome in routes else DEFAULT_OUTCOME]

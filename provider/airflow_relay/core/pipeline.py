"""The declaration of a pipeline: a named graph of stages, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from airflow_relay.core import naming
from airflow_relay.core.states import PriorityClass


class End(str, Enum):
    """Where a route can lead besides a stage."""

    DONE = "@done"
    DISCARDED = "@discarded"
    PERSON = "@person"  # into the dead letters: a person decides


END: Final = End.DONE
DISCARD: Final = End.DISCARDED
PERSON: Final = End.PERSON

Target = str | End
DEFAULT_OUTCOME: Final = "default"


class PipelineError(ValueError):
    """A pipeline's declaration contradicts itself. The text names the stage and the cure."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A daily window in the pipeline's timezone in which a stage may start, for consumers with known hours.

    :param start: ``"HH:MM"``, included.
    :param end: ``"HH:MM"``, excluded; earlier than ``start`` means a window over midnight.
    """

    start: str
    end: str


@dataclass(frozen=True)
class Stage:
    """One step of a pipeline.

    :param name: unique in the pipeline; letters, digits, ``_`` and ``-``, no ``__``.
    :param status: the pipeline's word for an item that has completed the stage (``"researched"``).
    :param to: what follows: a stage's name, :data:`END`, :data:`DISCARD`, :data:`PERSON`, or a table
        outcome → one of these. A table makes the stage a router; its ``"default"`` entry, when there is one,
        serves outcomes that the table does not name and a stage that a person marked a success.
    :param schedule: cron expression of the intake. Exactly one stage, the entry, has one.
    :param limit: runs of this stage at once; ``None`` leaves it to ``airflow.runs``.
    :param keys: further capacity keys of which each run holds one unit, also shared across pipelines.
    :param priority: rank of the stage in the dispatcher, higher first; ``None`` ranks by nearness to the end.
    :param timeout: absolute limit of one run, from its first guarded task; ``None`` for none.
    :param expected: how long the stage may legitimately take before the sweep alerts (it never refires a live
        run); ``None`` means the timeout, or 2 h.
    :param fallback: cron expressions of the stage's old schedule, for its paused fallback DAG.
    :param max_visits: how often one item may enter the stage; needed on one stage of each loop.
    :param after_max_visits: where an item goes instead when its visits are used up.
    :param window: a daily window outside which no grant is given.
    :param outcome_field: of a router: where its result names the outcome, a dotted path into the mapping
        (``"data.verdict"``). A result that is a text is the outcome itself.
    """

    name: str
    status: str = ""
    to: Target | Mapping[str, Target] = END
    schedule: str | None = None
    limit: int | None = None
    keys: tuple[str, ...] = ()
    priority: int | None = None
    timeout: timedelta | None = None
    expected: timedelta | None = None
    fallback: tuple[str, ...] | str = ()
    max_visits: int | None = None
    after_max_visits: Target = PERSON
    window: Window | None = None
    outcome_field: str = "outcome"

    @property
    def routes(self) -> Mapping[str, Target]:
        """Outcome → target; a plain route is the table with only the default outcome."""
        return {DEFAULT_OUTCOME: self.to} if isinstance(self.to, str) else self.to

    @property
    def is_router(self) -> bool:
        return not isinstance(self.to, str)

    @property
    def fallback_schedules(self) -> tuple[str, ...]:
        return (self.fallback,) if isinstance(self.fallback, str) else tuple(self.fallback)

    @property
    def successors(self) -> tuple[str, ...]:
        """The stages that may follow, in order of declaration, each once."""
        targets = [*self.routes.values()]
        if self.max_visits is not None:
            targets.append(self.after_max_visits)
        return tuple(dict.fromkeys(t for t in targets if not isinstance(t, End)))


@dataclass(frozen=True)
class Pipeline:
    """A named graph of stages, checked at once.

    :param name: letters, digits, ``_`` and ``-``, no ``__``; prefix of its DAG ids.
    :param stages: in order of declaration.
    :param timezone: name of the zone for schedules, windows, and the calendar day of attempts and budgets.
    :param klass: priority class of its items.
    :param limits: default limits of the extra capacity keys that its stages name.
    :param max_in_progress: the intake does nothing while so many items are ready or in flight.
    :raises PipelineError: the declaration contradicts itself; the text names the stage and the cure.
    """

    name: str
    stages: Sequence[Stage]
    timezone: str = "UTC"
    klass: PriorityClass = PriorityClass.P2
    limits: Mapping[str, int] = field(default_factory=dict)
    max_in_progress: int | None = None
    description: str = ""

    def __post_init__(self) -> None:
        from airflow_relay.core.pipeline_checks import check  # noqa: PLC0415 - needs this class
        from airflow_relay.core.pipeline_types import check_types  # noqa: PLC0415 - needs this class

        check_types(self)
        object.__setattr__(self, "stages", tuple(self.stages))
        object.__setattr__(self, "klass", PriorityClass(self.klass))
        check(self)

    @property
    def entry(self) -> Stage:
        """The only scheduled stage."""
        return next(s for s in self.stages if s.schedule is not None)

    def stage(self, name: str) -> Stage:
        """Return the stage called ``name``.

        :raises PipelineError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(s.name for s in self.stages)
        raise PipelineError(f"Pipeline '{self.name}' has no stage '{name}'. Its stages are: {known}.")

    def has_stage(self, name: str) -> bool:
        return any(s.name == name for s in self.stages)

    def dag_id(self, stage: str) -> str:
        return naming.dag_id(self.name, stage)

    def keys(self, stage: str) -> tuple[str, ...]:
        """The capacity keys of which a run of the stage holds one unit each, ``airflow.runs`` aside."""
        return (f"{self.name}.{stage}", *self.stage(stage).keys)

    def rank(self, stage: str) -> int:
        """Dispatch rank: a set priority, else 100 less the number of stages still to come (SHIP first)."""
        declared = self.stage(stage)
        return declared.priority if declared.priority is not None else 100 - self._distance(stage)

    def declared_limits(self) -> dict[str, int]:
        """Capacity key → default limit, as the declaration says."""
        own = {f"{self.name}.{s.name}": s.limit for s in self.stages if s.limit is not None}
        return {**self.limits, **own}

    def _distance(self, name: str) -> int:
        frontier, seen, distance = {name}, {name}, 0
        while frontier:
            if any(END in self.stage(n).routes.values() for n in frontier):
                return distance
            frontier = {s for n in frontier for s in self.stage(n).successors} - seen
            seen |= frontier
            distance += 1
        return distance  # no way to the end, only to discard or a person: ranks by the longest way

    def to_json(self) -> dict[str, Any]:
        """The declaration as JSON, for the ledger: tick, sweep and CLI know pipelines without their files."""
        return {
            "name": self.name,
            "timezone": self.timezone,
            "klass": self.klass.value,
            "limits": dict(self.limits),
            "max_in_progress": self.max_in_progress,
            "description": self.description,
            "stages": [_stage_to_json(s) for s in self.stages],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pipeline:
        """The inverse of :meth:`to_json`."""
        return cls(
            name=data["name"],
            timezone=data["timezone"],
            klass=PriorityClass(data["klass"]),
            limits=data["limits"],
            max_in_progress=data["max_in_progress"],
            description=data["description"],
            stages=[_stage_from_json(s) for s in data["stages"]],
        )


def _target_from_json(value: str) -> Target:
    return End(value) if value.startswith("@") else value


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _stage_to_json(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "status": stage.status,
        "to": {k: str(getattr(v, "value", v)) for k, v in stage.routes.items()},
        "router": stage.is_router,
        "schedule": stage.schedule,
        "limit": stage.limit,
        "keys": list(stage.keys),
        "priority": stage.priority,
        "timeout": _seconds(stage.timeout),
        "expected": _seconds(stage.expected),
        "fallback": list(stage.fallback_schedules),
        "max_visits": stage.max_visits,
        "after_max_visits": str(getattr(stage.after_max_visits, "value", stage.after_max_visits)),
        "outcome_field": stage.outcome_field,
        "window": None if stage.window is None else [stage.window.start, stage.window.end],
    }


def _stage_from_json(data: Mapping[str, Any]) -> Stage:
    table = {k: _target_from_json(v) for k, v in data["to"].items()}
    window = data["window"]
    return Stage(
        data["name"],
        status=data["status"],
        to=table if data["router"] else table[DEFAULT_OUTCOME],
        schedule=data["schedule"],
        limit=data["limit"],
        keys=tuple(data["keys"]),
        priority=data["priority"],
        timeout=None if data["timeout"] is None else timedelta(seconds=data["timeout"]),
        expected=None if data["expected"] is None else timedelta(seconds=data["expected"]),
        fallback=tuple(data["fallback"]),
        max_visits=data["max_visits"],
        after_max_visits=_target_from_json(data["after_max_visits"]),
        outcome_field=data["outcome_field"],
        window=None if window is None else Window(start=window[0], end=window[1]),
    )

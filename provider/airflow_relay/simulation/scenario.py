"""What a scenario file may say. Every number is a :class:`~.quantity.Quantity` and can name its source."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import croniter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from airflow_relay.core.barrier import BarrierSettings
from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.core.pipeline import End, Pipeline, Stage, Target, Window
from airflow_relay.core.states import PriorityClass
from airflow_relay.simulation.quantity import Amount, Constant, Quantity, Share


def _cron(text: str) -> str:
    if not croniter.is_valid(text):
        raise ValueError(f"{text!r} is no cron expression")
    return text


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{text!r} is no timezone: write a name such as Europe/Vienna") from None
    return text


def _time(text: str) -> str:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        raise ValueError(f'{text!r} is no time of day: write HH:MM, such as "20:00"')
    return text


def _route(text: str) -> str:
    """An end by its name in a declaration means the same as by its value."""
    value = End[_END_NAMES[text]].value if text in _END_NAMES else text
    if value.startswith("@") and value not in {end.value for end in End}:
        raise ValueError(f"{text!r} is no end: use {', '.join(e.value for e in End)}, or a stage's name")
    return value


_END_NAMES = {"END": "DONE", "DISCARD": "DISCARDED", "PERSON": "PERSON"}

Cron = Annotated[str, AfterValidator(_cron)]
Route = Annotated[str, AfterValidator(_route)]
TimeOfDay = Annotated[str, AfterValidator(_time)]
# Strict: a truth value is no number (`limit: yes` would else be a limit of 1).
Count = Annotated[int, Field(ge=1, strict=True)]
Span = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of a scenario file: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelKind(str, Enum):
    """Ways to run the same work."""

    CRON = "cron"  # each stage at fixed times, blind to what is ready
    RELAY = "relay"  # Relay: completion-triggered, by the rules of core
    BLIND_TIMERS = "blind_timers"  # whole cycles at fixed intervals, with contention for one agent service
    FIXED_TIMER = "fixed_timer"  # an orchestrator at t + N hours
    POLLING = "polling"  # the barrier


class AgentCalls(Section):
    """A stage's body as agent calls that share one service, instead of a plain time."""

    parallel: Constant
    """Calls at once in a round."""
    rounds: Amount
    """Rounds one after another."""
    seconds: Amount
    """Of one call while the service is not overloaded."""


class StageSpec(Section):
    """A stage: its place in the graph as in a declaration, and how its body behaves."""

    name: str
    to: Route | dict[str, Route] = End.DONE.value
    """A stage, an end (``"@done"``, ``"@discarded"``, ``"@person"``), or a table outcome → one of these."""
    outcomes: dict[str, Share] = Field(default_factory=dict)
    """Of a router: outcome → its share."""
    minutes: Amount | None = None
    calls: AgentCalls | None = None
    failure_rate: Share = Quantity(value=0)
    """Share of runs that end in an error, Airflow's own retries included."""
    failure_classes: dict[ErrorClass, Annotated[float, Field(ge=0)]] = {ErrorClass.SERVER_ERROR: 1.0}
    """Error class → weight."""
    failure_minutes: Amount | None = None
    """How long a failing run takes; left out: as long as a good one."""
    tokens: Constant = Quantity(value=0)
    """Tokens of one run, failed ones included."""
    schedule: Cron | None = None
    limit: Count | None = None
    keys: tuple[str, ...] = ()
    priority: int | None = None
    timeout_minutes: Span | None = None
    max_visits: Count | None = None
    after_max_visits: Route = End.PERSON.value
    window: tuple[TimeOfDay, TimeOfDay] | None = None

    @model_validator(mode="after")
    def _body(self) -> StageSpec:
        if (self.minutes is None) == (self.calls is None):
            raise ValueError(f"stage {self.name!r}: give either minutes or calls")
        if isinstance(self.to, dict) and set(self.outcomes) - set(self.to):
            strange = ", ".join(sorted(set(self.outcomes) - set(self.to)))
            raise ValueError(f"stage {self.name!r}: outcomes {strange} have no route in 'to'")
        if isinstance(self.to, dict) and not self.outcomes:
            raise ValueError(f"stage {self.name!r} is a router: say in 'outcomes' how often each happens")
        return self

    def stage(self) -> Stage:
        """The declaration of core."""
        return Stage(
            self.name,
            to={k: _target(v) for k, v in self.to.items()} if isinstance(self.to, dict) else _target(self.to),
            schedule=self.schedule,
            limit=self.limit,
            keys=self.keys,
            priority=self.priority,
            timeout=None if self.timeout_minutes is None else timedelta(minutes=self.timeout_minutes),
            max_visits=self.max_visits,
            after_max_visits=_target(self.after_max_visits),
            window=None if self.window is None else Window(start=self.window[0], end=self.window[1]),
        )


def _target(text: str) -> Target:
    return End(text) if text.startswith("@") else text


class Arrivals(Section):
    """How work comes. Give one of the two."""

    per_intake: Amount | None = None
    """Items that each scheduled intake finds."""
    per_day: Constant | None = None
    """Items that appear a day, at any time (Poisson); the next intake finds all that are there."""
    priority: Quantity = Quantity(value=0)

    @model_validator(mode="after")
    def _one(self) -> Arrivals:
        if (self.per_intake is None) == (self.per_day is None):
            raise ValueError("give either per_intake or per_day")
        return self


class PipelineSpec(Section):
    """A pipeline: checked as in production, since it becomes a declaration of core."""

    stages: Annotated[tuple[StageSpec, ...], Field(min_length=1)]
    arrivals: Arrivals
    klass: PriorityClass = PriorityClass.P2
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    limits: dict[str, Count] = Field(default_factory=dict)
    max_in_progress: Count | None = None

    def pipeline(self, name: str) -> Pipeline:
        """The declaration of core.

        :raises PipelineError: the declaration contradicts itself.
        """
        return Pipeline(
            name,
            [spec.stage() for spec in self.stages],
            timezone=self.timezone,
            klass=self.klass,
            limits=self.limits,
            max_in_progress=self.max_in_progress,
        )


class Outage(Section):
    """The service behind a stage is down."""

    stage: str
    """``pipeline.stage``; only ``stage`` where there is one pipeline."""
    at_hours: Constant
    """Hours from the start of the simulation."""
    hours: Constant
    every_days: Constant | None = None
    """Comes again after so many days."""
    error_class: ErrorClass = ErrorClass.OVERLOADED
    fails_after_minutes: Constant = Quantity(value=1, assumption="a dead service is noticed within a minute")


class Latency(Section):
    """What lies between a grant and the first task of the stage, and what gets lost on the way."""

    start_seconds: Amount = Quantity(value=0, assumption="left out: starting a run takes no time")
    """Grant → the stage's first task."""
    hand_off_seconds: Amount = Quantity(value=0, assumption="left out: the hand-off takes no time")
    """End of the body → the hand-off's transaction."""
    lost_triggers: Share = Quantity(value=0)
    """Share of grants whose sender is killed after its transaction."""
    crashes: Share = Quantity(value=0)
    """Share of runs that end without telling anybody: a worker lost, a run deleted."""
    noticed_after_minutes: Constant = Quantity(
        value=5, source="Airflow's task_instance_heartbeat_timeout: 300 s"
    )
    """Death of a worker → Airflow knows."""


class People(Section):
    """Who looks after what automation does not move."""

    notice_hours: Amount = Quantity(value=2, assumption="left out: a person reacts after 2 h")
    """Until a person sees it, counted in waking hours."""
    awake: tuple[Annotated[int, Field(ge=0, le=24)], Annotated[int, Field(ge=0, le=24)]] = (0, 24)
    """Hours of the day, UTC."""
    gives_up: Share = Quantity(value=0)
    """Share of dead letters that a person discards; the others are fixed and run again."""


class TrackSpec(Section):
    """A parallel branch of an overnight run."""

    hours: Amount
    max_hours: Span | None = None
    dies: Share = Quantity(value=0)
    """Share of runs in which its process ends without a report."""


class Overnight(Section):
    """Parallel tracks, then a consolidation."""

    tracks: Annotated[dict[str, TrackSpec], Field(min_length=1)]
    consolidation_hours: Amount
    start: TimeOfDay = "20:00"


class TimerSpec(Section):
    """A process that a timer starts, whatever else runs."""

    every_minutes: Constant
    offset_minutes: Constant = Quantity(value=0)
    """After midnight UTC."""
    phases: Annotated[tuple[StageSpec, ...], Field(min_length=1)]
    """One after another; one with ``timeout_minutes`` is cut off after so long, and its cycle ends there."""

    @property
    def limited(self) -> bool:
        """Some phase has a timeout: its cycles are counted as dispatches."""
        return any(phase.timeout_minutes is not None for phase in self.phases)


class Service(Section):
    """The agent service that all calls share: up to ``capacity`` at full speed, beyond it slower."""

    capacity: Constant


class ModelSpec(Section):
    """One way to run the work."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    kind: ModelKind
    title: str
    note: str = ""
    schedules: dict[str, tuple[Cron, ...]] = Field(default_factory=dict)
    """``cron``: stage → its fire times; one without them follows its predecessor at once."""
    items_per_run: Constant | None = None
    """``cron``: how many waiting items one firing takes; left out: all."""
    limits: dict[str, Annotated[int, Field(ge=0, strict=True)]] = Field(default_factory=dict)
    """``relay``: as the Variable ``relay_limits``."""
    rules: dict[str, Any] = Field(default_factory=dict)
    """``relay``: as the Variable ``relay_rules``."""
    sweep_hours: Span | None = 2
    """``relay``: the recovery sweep's interval; null: no sweep."""
    breaker_threshold: Count = 5
    tick_minutes: Span = 5
    """``relay``: the tick's interval."""
    granted_at_ticks: bool = False
    """``relay``: grants only at the tick (a dispatcher on a heartbeat), not at each completion."""
    timer_hours: Constant | None = None
    """``fixed_timer``: when the orchestrator wakes."""
    first_poll_hours: Constant = Quantity(value=3, source="third document: first poll at t+3h")
    poll_minutes: Constant = Quantity(value=30, source="third document: re-schedule interval = 30 min")
    ceiling_hours: Constant = Quantity(value=14, source="third document: hard ceiling = 14h")
    failures: bool = True
    """False: no run fails by itself; outages, crashes and timeouts stay."""
    changes: dict[str, float] = Field(default_factory=dict)
    """``blind_timers``: what a five-minute fix changes: ``timeout_minutes`` and ``rounds`` of the phases with
    a timeout, ``offset_minutes`` between the timers that have such a phase."""

    def barrier(self) -> BarrierSettings:
        """The settings of ``polling``.

        :raises BarrierSettingsError: they contradict each other.
        """
        return BarrierSettings(
            first_poll=self.first_poll_hours.constant * 3600,
            poll_interval=self.poll_minutes.constant * 60,
            ceiling=self.ceiling_hours.constant * 3600,
        )


class Claim(Section):
    """A figure of a document, and where the twin measures it."""

    text: str
    quote: str
    """Of the document, in few words, or what it rests on."""
    measure: str
    """Name of a measure; ``experiment.MEASURES`` lists them."""
    unit: str = ""
    low: float
    high: float
    """The document's range, ends included."""
    model: str
    literal: str | None = None
    """The model that takes the document's inputs as they stand, when the first one needs more than those."""
    note: str = ""
    """Where the document's number does not follow from its own inputs, or what was assumed."""


class Finding(Section):
    """A place where a document contradicts itself."""

    where: str
    what: str


class Scenario(Section):
    """A scenario file."""

    format: Literal[1] = 1
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    title: str
    document: str = ""
    start: datetime = datetime(2026, 6, 1, tzinfo=timezone.utc)
    days: Count = 30
    seeds: Count = 20
    pipelines: dict[str, PipelineSpec] = Field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    latency: Latency = Latency()
    people: People = People()
    overnight: Overnight | None = None
    timers: dict[str, TimerSpec] = Field(default_factory=dict)
    service: Service | None = None
    models: Annotated[tuple[ModelSpec, ...], Field(min_length=1)]
    claims: tuple[Claim, ...] = ()
    findings: tuple[Finding, ...] = ()

    @field_validator("start")
    @classmethod
    def _utc(cls, value: datetime) -> datetime:
        if value.utcoffset() is None:
            raise ValueError("write a time with its timezone, such as 2026-06-01T00:00Z")
        return value.astimezone(timezone.utc)

    @model_validator(mode="after")
    def _complete(self) -> Scenario:
        from airflow_relay.simulation.scenario_checks import check  # noqa: PLC0415 - needs this class

        check(self)
        return self

    def model(self, name: str) -> ModelSpec:
        """The model with this name.

        :raises KeyError: there is none.
        """
        return next(m for m in self.models if m.name == name)

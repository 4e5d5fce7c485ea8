"""What a scenario must have so that each of its models can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from airflow_relay.core.barrier import BarrierSettingsError
from airflow_relay.core.dispatch import check_shared_keys
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.rules import parse_rules
from airflow_relay.core.states import AIRFLOW_RUNS_KEY
from airflow_relay.simulation.scenario import ModelKind, ModelSpec, Scenario

MOST_PER_DAY: Final = 1_000_000
"""Of arrivals: more than that does not fit into a machine's memory or a person's patience."""


class ScenarioContradictionError(ValueError):
    """Part of a scenario does not fit the rest.

    :ivar path: where in the file, as keys and list indexes.
    """

    def __init__(self, path: tuple[str | int, ...], problem: str) -> None:
        super().__init__(problem)
        self.path = path


def check(scenario: Scenario) -> None:
    """Refuse what contradicts itself.

    :raises ScenarioContradictionError: the first problem, with its place.
    """
    for problem in _problems(scenario):
        raise problem


def _problems(scenario: Scenario) -> Iterator[ScenarioContradictionError]:
    yield from _pipeline_problems(scenario)
    for index, model in enumerate(scenario.models):
        for field, problem in _model_problems(scenario, model):
            yield ScenarioContradictionError(("models", index, field), f"model {model.name!r}: {problem}")
    for name, count in Counter(m.name for m in scenario.models).items():
        if count > 1:
            yield ScenarioContradictionError(
                ("models",), f"{count} models are called {name!r}: names must differ"
            )
    yield from _claim_problems(scenario)
    known = {f"{p}.{s.name}" for p, spec in scenario.pipelines.items() for s in spec.stages}
    known |= {s.name for spec in scenario.pipelines.values() for s in spec.stages}
    for index, outage in enumerate(scenario.outages):
        if outage.stage not in known:
            yield ScenarioContradictionError(
                ("outages", index, "stage"), f"there is no stage {outage.stage!r}"
            )


def _pipeline_problems(scenario: Scenario) -> Iterator[ScenarioContradictionError]:
    declared = []
    for name, spec in scenario.pipelines.items():
        try:
            declared.append(spec.pipeline(name))
        except PipelineError as error:
            yield ScenarioContradictionError(("pipelines", name, "stages"), str(error))
        per_day = spec.arrivals.per_day
        if per_day is not None and not 0 < per_day.constant <= MOST_PER_DAY:
            yield ScenarioContradictionError(
                ("pipelines", name, "arrivals", "per_day"),
                f"must be above 0 and at most {MOST_PER_DAY:,}: leave idle pipelines out, scale big ones",
            )
        for index, stage in enumerate(spec.stages):
            if stage.calls is not None and scenario.service is None:
                where = ("pipelines", name, "stages", index, "calls")
                yield ScenarioContradictionError(where, "calls need a 'service' with its capacity")
    try:
        check_shared_keys(declared)
    except PipelineError as error:
        yield ScenarioContradictionError(("pipelines",), str(error))


def _model_problems(scenario: Scenario, model: ModelSpec) -> Iterator[tuple[str, str]]:
    needs = {
        ModelKind.CRON: ("pipelines", scenario.pipelines),
        ModelKind.RELAY: ("pipelines", scenario.pipelines),
        ModelKind.BLIND_TIMERS: ("timers", scenario.timers),
        ModelKind.FIXED_TIMER: ("overnight", scenario.overnight),
        ModelKind.POLLING: ("overnight", scenario.overnight),
    }
    section, there = needs[model.kind]
    if not there:
        yield "kind", f"kind {model.kind.value!r} needs the section {section!r}"
        return
    if model.kind is ModelKind.CRON:
        yield from _schedule_problems(scenario, model)
    if model.kind is ModelKind.BLIND_TIMERS and scenario.service is None:
        yield "kind", "blind timers compete for a 'service': give its capacity"
    if model.kind is ModelKind.FIXED_TIMER and model.timer_hours is None:
        yield "timer_hours", "say when the orchestrator wakes"
    try:
        model.barrier()
    except BarrierSettingsError as error:
        yield _BARRIER_FIELDS[error.field], str(error)
    keys = known_keys(scenario)
    for key in model.limits:
        if key not in keys:
            yield "limits", f"no stage needs the capacity key {key!r}.{near(key, keys)}"
    for problem in parse_rules(model.rules)[1]:
        yield "rules", problem


_BARRIER_FIELDS: Final = {
    "first_poll": "first_poll_hours",
    "poll_interval": "poll_minutes",
    "ceiling": "ceiling_hours",
}


def known_keys(scenario: Scenario) -> list[str]:
    """Every capacity key that some stage needs."""
    found = {AIRFLOW_RUNS_KEY}
    for name, spec in scenario.pipelines.items():
        for stage in spec.stages:
            found.update((f"{name}.{stage.name}", *stage.keys))
    return sorted(found)


def near(name: str, known: Sequence[str]) -> str:
    """What a person may have meant."""
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Keys: {', '.join(known)}."


def _schedule_problems(scenario: Scenario, model: ModelSpec) -> Iterator[tuple[str, str]]:
    if len(scenario.pipelines) != 1:
        yield "kind", "fixed cron schedules are modelled for one pipeline"
        return
    specs = [s for spec in scenario.pipelines.values() for s in spec.stages]
    strange = set(model.schedules) - {s.name for s in specs}
    if strange:
        yield "schedules", f"there is no stage {', '.join(sorted(strange))}"
    entry = next((s.name for s in specs if s.schedule is not None), None)
    if entry not in model.schedules:
        yield "schedules", f"the entry stage {entry!r} has no fire times"


def _claim_problems(scenario: Scenario) -> Iterator[ScenarioContradictionError]:
    names = {m.name for m in scenario.models}
    for index, claim in enumerate(scenario.claims):
        for field in ("model", "literal"):
            name = getattr(claim, field)
            if name is not None and name not in names:
                yield ScenarioContradictionError(("claims", index, field), f"there is no model {name!r}")

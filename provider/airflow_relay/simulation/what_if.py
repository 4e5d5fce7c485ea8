"""Compare today with other limits, another schedule or an outage, and say which limit holds work up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from croniter import croniter

from airflow_relay.core.states import WaitReason
from airflow_relay.simulation.experiment import Outcome, Progress, Result, simulate
from airflow_relay.simulation.scenario import ModelKind, ModelSpec, Scenario
from airflow_relay.simulation.scenario_checks import known_keys, near

TODAY: Final = "today"
CHANGED: Final = "changed"

OUTAGE_BEGINS_HOURS: Final = 36
"""A what-if outage begins at noon of the second simulated day."""


class ChangeError(Exception):
    """A change cannot be made; the text says what there is instead."""


@dataclass(frozen=True)
class Changes:
    """What is to be different.

    :param limits: capacity key → limit.
    :param schedules: entry stage → cron expression.
    :param outages: stage → hours.
    """

    limits: Mapping[str, int]
    schedules: Mapping[str, str]
    outages: Mapping[str, float]

    def __bool__(self) -> bool:
        return bool(self.limits or self.schedules or self.outages)

    def words(self) -> str:
        parts = [f"{key} = {limit}" for key, limit in self.limits.items()]
        parts += [f"{stage} at “{cron}”" for stage, cron in self.schedules.items()]
        parts += [f"{stage} down for {hours:g} h" for stage, hours in self.outages.items()]
        return ", ".join(parts)


def parse_limit(text: str) -> tuple[str, int]:
    """``key=2``.

    :raises ValueError: it is not of this form.
    """
    key, sign, number = text.partition("=")
    if not sign or not key or not number.strip().isdigit():
        raise ValueError(f"{text!r}: write KEY=NUMBER, such as newsroom.critique=2")
    return key.strip(), int(number)


def parse_schedule(text: str) -> tuple[str, str]:
    """``stage=cron``.

    :raises ValueError: it is not of this form.
    """
    stage, sign, cron = text.partition("=")
    if not sign or not stage or not cron.strip():
        raise ValueError(f'{text!r}: write STAGE=CRON, such as research="0 */2 * * *"')
    cron = cron.strip().strip("\"'")
    if not croniter.is_valid(cron):
        raise ValueError(f"{text!r}: {cron!r} is no cron expression")
    return stage.strip(), cron


def parse_outage(text: str) -> tuple[str, float]:
    """``stage=6h``; ``m`` and ``d`` are understood as well. Returns hours.

    :raises ValueError: it is not of this form.
    """
    stage, _, span = text.partition("=")
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([mhd])\s*", span)
    if not stage or found is None:
        raise ValueError(f"{text!r}: write STAGE=TIME, such as art_direction=6h")
    return stage.strip(), float(found[1]) * {"m": 1 / 60, "h": 1, "d": 24}[found[2]]


def compare(
    scenario: Scenario,
    changes: Changes,
    *,
    days: int,
    seed: int,
    seeds: int,
    progress: Progress = lambda: None,
) -> Result:
    """Simulate today and, where something is to change, the changed setting with the same work.

    :raises ChangeError: there is no such key or stage, or the scenario has no model with Relay's rules.
    """
    base = next((m for m in scenario.models if m.kind is ModelKind.RELAY), None)
    if base is None:
        raise ChangeError(
            f"Scenario {scenario.name!r} has no model of kind 'relay', whose limits could be changed."
        )
    today = _with_model(scenario, base, name=TODAY, title="Today")
    result = simulate(today, days=days, seed=seed, seeds=seeds, progress=progress)
    if not changes:
        return result
    changed = _changed(_with_model(scenario, base, name=CHANGED, title=changes.words()), changes)
    other = simulate(changed, days=days, seed=seed, seeds=seeds, progress=progress)
    return Result(today, result.days, result.seeds, {**result.outcomes, **other.outcomes})


def _with_model(scenario: Scenario, base: ModelSpec, *, name: str, title: str) -> Scenario:
    model = base.model_copy(update={"name": name, "title": title})
    return scenario.model_copy(update={"models": (model,), "claims": ()})


def _changed(scenario: Scenario, changes: Changes) -> Scenario:
    data: dict[str, Any] = scenario.model_dump(mode="json", exclude_none=True)
    keys = known_keys(scenario)
    for key in changes.limits:
        if key not in keys:
            raise ChangeError(f"No stage needs the capacity key {key!r}.{near(key, keys)}")
    data["models"][0]["limits"] = {**data["models"][0]["limits"], **changes.limits}
    for stage, cron in changes.schedules.items():
        _entry(data, stage)["schedule"] = cron
    stages = [f"{p}.{s.name}" for p, spec in scenario.pipelines.items() for s in spec.stages]
    for stage, hours in changes.outages.items():
        full = [s for s in stages if stage in (s, s.partition(".")[2])]
        if len(full) != 1:
            problem = "names several stages" if full else "is no stage"
            raise ChangeError(f"{stage!r} {problem}. Stages: {', '.join(stages)}.")
        outage = {"stage": full[0], "at_hours": OUTAGE_BEGINS_HOURS, "hours": hours}
        data["outages"] = [*data["outages"], outage]
    return Scenario.model_validate(data)


def _entry(data: dict[str, Any], name: str) -> dict[str, Any]:
    entries = {
        f"{pipeline}.{stage['name']}": stage
        for pipeline, spec in data["pipelines"].items()
        for stage in spec["stages"]
        if stage.get("schedule")
    }
    found = [stage for full, stage in entries.items() if name in (full, full.partition(".")[2])]
    if len(found) != 1:
        raise ChangeError(
            f"{name!r} is no entry stage: only the entry has a schedule. Entry stages: {', '.join(entries)}."
        )
    entry: dict[str, Any] = found[0]
    return entry


def bottleneck(outcome: Outcome) -> str:
    """Which limit holds work up most, in one sentence."""
    gates = {reason.value for reason in WaitReason}
    waits = sorted(outcome.waiting.items(), key=lambda e: -e[1])
    limits = [(key, waiting) for key, waiting in waits if key not in gates and waiting > 0]
    if not limits:
        slow = max(outcome.stage_busy.items(), key=lambda e: e[1], default=None)
        longest = "" if slow is None else f" The time goes into the work itself, most of it into {slow[0]}."
        return f"No limit holds anything up.{longest}"
    key, waiting = limits[0]
    in_use, limit = outcome.in_use.get(key, 0.0), outcome.limits.get(key)
    share = f", in use {in_use / limit:.0%} of the time" if limit else ""
    rest = sum(w for _, w in limits[1:])
    then = f" All other limits together hold up {rest:.2g}." if rest else ""
    return (
        f"The bottleneck is {key} (limit {limit}{share}): on average {waiting:.2g} items wait for it.{then}"
    )

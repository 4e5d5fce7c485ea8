"""The rules of the recovery sweep, as the Airflow Variable ``relay_rules`` states them.

The Variable is one JSON object. What it leaves out has its default, and ``pipelines`` overrides::

    {"attempts_per_day": 3, "cooldown_hours": 2, "pipelines": {"content": {"attempts_per_day": 5}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VARIABLE: Final = "relay_rules"
_A_MONTH_IN_HOURS: Final = 31 * 24

_Hours = Annotated[float, Field(ge=0, le=_A_MONTH_IN_HOURS, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=1_000_000)]


class PipelineRules(BaseModel):
    """The rules that a pipeline may override; DESIGN 4 gives the defaults."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    stale_hours: Annotated[float, Field(ge=0.001, le=_A_MONTH_IN_HOURS, allow_inf_nan=False)] = 2
    """An item is stale when its last activity is so long ago."""
    attempts_per_day: _Count = 3
    """Recovery attempts per item and calendar day in the pipeline's timezone; with 0 a person decides."""
    cooldown_hours: _Hours = 2
    """Elapsed time between two attempts of one item."""
    dry_run: bool = False
    """Decide and tell, and change nothing."""
    exclude: list[str] = Field(default_factory=list)
    """Keys of items that the sweep leaves alone."""


class SweepRules(PipelineRules):
    """The whole Variable but its overrides."""

    refires_per_sweep: _Count = 50
    """Over all pipelines."""


@dataclass(frozen=True, kw_only=True)
class RecoveryRules:
    """The rules as they hold for one pipeline, ready to decide with."""

    stale: timedelta = timedelta(hours=2)
    attempts_per_day: int = 3
    cooldown: timedelta = timedelta(hours=2)
    dry_run: bool = False
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """All rules of a sweep; :meth:`of` gives those of a pipeline."""

    default: RecoveryRules = field(default_factory=RecoveryRules)
    pipelines: Mapping[str, RecoveryRules] = field(default_factory=dict)
    refires_per_sweep: int = 50

    def of(self, pipeline: str) -> RecoveryRules:
        return self.pipelines.get(pipeline, self.default)

    def to_json(self) -> dict[str, Any]:
        """In the shape of the Variable, each value spelt out; :func:`parse_rules` reads it back."""
        return {
            **_spelt_out(self.default),
            "refires_per_sweep": self.refires_per_sweep,
            "pipelines": {name: _spelt_out(rules) for name, rules in self.pipelines.items()},
        }


def parse_rules(
    source: str | Mapping[str, Any] | None,
    *,
    dry_run: bool = False,
    exclude: Iterable[str] = (),
    known_pipelines: Iterable[str] | None = None,
) -> tuple[RuleSet, tuple[str, ...]]:
    """Read the Variable; what is wrong in it is reported by name and replaced by its default, never raised.

    A wrong value in a pipeline's overrides is replaced by the value for all pipelines.

    :param source: the Variable's text, its parsed JSON, or ``None`` or blank when there is none.
    :param dry_run: DAG parameter: true makes every pipeline's sweep a dry one.
    :param exclude: DAG parameter: further item keys, for every pipeline.
    :param known_pipelines: reports overrides for any other pipeline, when given.
    :return: the rules, and one sentence per problem.
    """
    problems: list[str] = []
    data = _object(source, problems)
    overrides = data.pop("pipelines", {})
    general = _validated(SweepRules, data, where="", problems=problems)
    if not isinstance(overrides, Mapping):
        problems.append(f"{VARIABLE}: 'pipelines' must be an object pipeline -> rules; it is ignored.")
        overrides = {}
    known = None if known_pipelines is None else set(known_pipelines)
    pipelines = {}
    for name, given in overrides.items():
        where = f"pipelines.{name}"
        if known is not None and name not in known:
            problems.append(f"{VARIABLE}: '{where}': there is no such pipeline.{_guess(name, known)}")
        if not isinstance(given, Mapping):
            problems.append(f"{VARIABLE}: '{where}' must be an object of rules; it is ignored.")
            continue
        valid = _validated(PipelineRules, given, where=f"{where}.", problems=problems)
        pipelines[name] = _rules({**general, **valid}, dry_run=dry_run, exclude=exclude)
    rule_set = RuleSet(
        default=_rules(general, dry_run=dry_run, exclude=exclude),
        pipelines=pipelines,
        refires_per_sweep=SweepRules(**general).refires_per_sweep,
    )
    return rule_set, tuple(problems)


def _object(source: str | Mapping[str, Any] | None, problems: list[str]) -> dict[str, Any]:
    if source is None or (isinstance(source, str) and not source.strip()):
        return {}
    data: Any = source
    if isinstance(source, str):
        try:
            data = json.loads(source)
        except (ValueError, RecursionError) as error:
            problems.append(f"{VARIABLE} is not valid JSON ({error}): all defaults are used.")
            return {}
    if not isinstance(data, Mapping):
        problems.append(f"{VARIABLE} must be a JSON object of rules: all defaults are used.")
        return {}
    return dict(data)


def _validated(
    model: type[PipelineRules], given: Mapping[str, Any], *, where: str, problems: list[str]
) -> dict[str, Any]:
    """The given values that are valid."""
    try:
        model.model_validate(dict(given))
    except ValidationError as error:
        wrong: dict[str, Mapping[str, Any]] = {}
        for detail in error.errors():
            wrong.setdefault(str(detail["loc"][0]), dict(detail))
        problems.extend(_problem(model, name, detail, where=where) for name, detail in wrong.items())
        return {name: value for name, value in given.items() if name not in wrong}
    return dict(given)


def _problem(model: type[PipelineRules], name: str, detail: Mapping[str, Any], *, where: str) -> str:
    if name not in model.model_fields:
        if name in SweepRules.model_fields:
            return f"{VARIABLE}: '{where}{name}' holds for the whole sweep; set it outside of 'pipelines'."
        return f"{VARIABLE}: there is no rule '{where}{name}'.{_guess(name, model.model_fields)}"
    instead = "the value for all pipelines" if where else f"the default {model.model_fields[name].default}"
    if name == "exclude" and not where:
        instead = "an empty list"
    given = repr(detail["input"])[:80]
    return f"{VARIABLE}: '{where}{name}' cannot be {given} ({detail['msg']}): {instead} is used."


def _guess(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" Do you mean '{close[0]}'?" if close else ""


def _rules(valid: Mapping[str, Any], *, dry_run: bool, exclude: Iterable[str]) -> RecoveryRules:
    rules = SweepRules(**valid)
    return RecoveryRules(
        stale=timedelta(hours=rules.stale_hours),
        attempts_per_day=rules.attempts_per_day,
        cooldown=timedelta(hours=rules.cooldown_hours),
        dry_run=rules.dry_run or dry_run,
        exclude=frozenset(rules.exclude) | frozenset(exclude),
    )


def _spelt_out(rules: RecoveryRules) -> dict[str, Any]:
    return {
        "stale_hours": rules.stale / timedelta(hours=1),
        "attempts_per_day": rules.attempts_per_day,
        "cooldown_hours": rules.cooldown / timedelta(hours=1),
        "dry_run": rules.dry_run,
        "exclude": sorted(rules.exclude),
    }

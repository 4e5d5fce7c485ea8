"""What makes a pipeline's declaration wrong, each with the stage and the cure in its text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from airflow_relay.core.completion import LONGEST_OUTCOME
from airflow_relay.core.naming import NAME_PATTERN
from airflow_relay.core.pipeline import End, PipelineError, Stage
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass

if TYPE_CHECKING:
    from airflow_relay.core.pipeline import Pipeline

_TAKEN: Final = {
    "relay": "the operations DAGs are relay__…",
    "budget": "budgets are limits named budget.…",
    "airflow": f"every run holds a unit of {AIRFLOW_RUNS_KEY!r}",
    **{
        name: "a hold of that name is one of the class"
        for klass in PriorityClass
        for name in (klass.value, klass.value.lower())
    },
}
_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_LONGEST_SPAN: Final = timedelta(days=366)
_HIGHEST_PRIORITY: Final = 1_000_000
_LONGEST_WORD: Final = 64
_LONGEST_KEY: Final = 200
"""Of a capacity key: the width of the ledger's column."""
_ANY_DAY: Final = datetime(2024, 1, 1)  # noqa: DTZ001 - only whether an expression ever comes up is asked


def check(pipeline: Pipeline) -> None:
    """Refuse a declaration that contradicts itself.

    :raises PipelineError: lists every problem found, one a line.
    """
    problems = list(_problems(pipeline))
    if problems:
        raise PipelineError(f"Pipeline {pipeline.name!r}: " + "\n".join(problems))


def _problems(pipeline: Pipeline) -> Iterator[str]:
    yield from _name_problem("The pipeline's name", pipeline.name)
    if pipeline.name in _TAKEN:
        yield f"the name {pipeline.name!r} is taken ({_TAKEN[pipeline.name]}): choose another."
    try:
        ZoneInfo(pipeline.timezone)
    except (KeyError, ValueError, OSError):
        yield f"timezone {pipeline.timezone!r} is unknown: use a name such as 'UTC' or 'Europe/Berlin'."
    yield from _limit_problems(pipeline)
    if not pipeline.stages:
        yield "it has no stages: give at least one Stage with a schedule."
        return
    for stage in pipeline.stages:
        yield from _stage_problems(pipeline, stage)
    for name, count in Counter(s.name for s in pipeline.stages).items():
        if count > 1:
            yield f"stage {name!r} is declared {count} times: names must differ."
    yield from _entry_problems(pipeline)
    yield from _graph_problems(pipeline)


def _limit_problems(pipeline: Pipeline) -> Iterator[str]:
    most = pipeline.max_in_progress
    if most is not None and not _is_count(most):
        yield f"max_in_progress={most!r}: give a whole number of at least 1, or leave it out."
    needed = {key for stage in pipeline.stages for key in _keys(pipeline, stage)} | {AIRFLOW_RUNS_KEY}
    for key, limit in pipeline.limits.items():
        if not _is_count(limit):
            yield f"limits[{key!r}]={limit!r}: give a whole number of at least 1."
        if key not in needed:
            yield f"limits[{key!r}]: no stage needs this key: add it to the keys= of a stage, or correct it."


def _name_problem(what: str, name: str) -> Iterator[str]:
    if not isinstance(name, str) or not NAME_PATTERN.match(name) or "__" in name:
        yield (
            f"{what} {name!r} is invalid: start with a letter, use letters, digits, '_' and '-', "
            "no '__', at most 64 characters."
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _stage_problems(pipeline: Pipeline, stage: Stage) -> Iterator[str]:
    yield from _name_problem("stage", stage.name)
    where = f"stage {stage.name!r}"
    yield from _route_problems(pipeline, stage, where)
    yield from _number_problems(stage, where)
    yield from _time_problems(stage, where)
    if len(stage.status) > _LONGEST_WORD:
        yield f"{where}: status={stage.status!r}: give at most {_LONGEST_WORD} characters."
    yield from _key_problems(pipeline, stage, where)


def _key_problems(pipeline: Pipeline, stage: Stage, where: str) -> Iterator[str]:
    for key in (AIRFLOW_RUNS_KEY, f"{pipeline.name}.{stage.name}"):
        if key in stage.keys:
            yield f"{where}: every run of it holds {key!r} already: take it out of keys."
    if len(set(stage.keys)) != len(stage.keys):
        yield f"{where}: keys={stage.keys!r} names a key twice: each run holds one unit of each."
    for key in stage.keys:
        if not key or len(key) > _LONGEST_KEY or not key.isprintable():
            yield f"{where}: key {key!r}: give 1 to {_LONGEST_KEY} printable characters."
        if key.startswith("budget."):
            yield f"{where}: key {key!r}: limits named budget.… are token budgets: choose another name."


def _keys(pipeline: Pipeline, stage: Stage) -> tuple[str, ...]:
    return (f"{pipeline.name}.{stage.name}", *stage.keys)


def _route_problems(pipeline: Pipeline, stage: Stage, where: str) -> Iterator[str]:
    names = {s.name for s in pipeline.stages}
    if isinstance(stage.to, Mapping) and not stage.to:
        yield f"{where}: its route table is empty: name at least one outcome."
    for outcome, target in stage.routes.items():
        if not isinstance(target, End) and target not in names:
            yield f"{where}: outcome {outcome!r} leads to {target!r}, which is no stage: {_known(pipeline)}."
        if not isinstance(outcome, str) or not 0 < len(outcome) <= LONGEST_OUTCOME:
            yield f"{where}: outcome {outcome!r}: give a string of 1 to {LONGEST_OUTCOME} characters."
    target = stage.after_max_visits
    if not isinstance(target, End) and target not in names:
        yield f"{where}: after_max_visits={target!r} is no stage: {_known(pipeline)}."


def _number_problems(stage: Stage, where: str) -> Iterator[str]:
    for field in ("limit", "max_visits"):
        value = getattr(stage, field)
        if value is not None and not _is_count(value):
            yield f"{where}: {field}={value!r}: give a whole number of at least 1, or leave it out."
    rank = stage.priority
    if rank is not None and (
        isinstance(rank, bool) or not isinstance(rank, int) or abs(rank) > _HIGHEST_PRIORITY
    ):
        yield (
            f"{where}: priority={rank!r}: give a whole number between -{_HIGHEST_PRIORITY} and "
            f"{_HIGHEST_PRIORITY}, or leave it out."
        )


def _time_problems(stage: Stage, where: str) -> Iterator[str]:
    for field in ("timeout", "expected"):
        value = getattr(stage, field)
        if value is not None and (not isinstance(value, timedelta) or value <= timedelta(0)):
            yield f"{where}: {field}={value!r}: give a timedelta above zero, or leave it out."
        elif value is not None and value > _LONGEST_SPAN:
            yield f"{where}: {field}={value!r}: give at most {_LONGEST_SPAN.days} days, or leave it out."
    schedules = stage.fallback_schedules + ((stage.schedule,) if stage.schedule is not None else ())
    for cron in schedules:
        if not isinstance(cron, str) or not croniter.is_valid(cron):
            yield f"{where}: {cron!r} is no cron expression: five fields such as '0 7,11,19 * * *'."
        elif not _comes_up(cron):
            yield f"{where}: {cron!r} never comes up: there is no such day."
    if stage.window and not all(_TIME_OF_DAY.fullmatch(t) for t in (stage.window.start, stage.window.end)):
        yield f"{where}: window {stage.window.start!r} to {stage.window.end!r}: give times as 'HH:MM'."


def _comes_up(cron: str) -> bool:
    try:
        croniter(cron, _ANY_DAY).get_next()
    except CroniterError:
        return False
    return True


def _known(pipeline: Pipeline) -> str:
    return "use one of " + ", ".join(s.name for s in pipeline.stages) + ", END, DISCARD or PERSON"


def _entry_problems(pipeline: Pipeline) -> Iterator[str]:
    scheduled = [s.name for s in pipeline.stages if s.schedule is not None]
    if not scheduled:
        yield f"no stage has a schedule: give the entry stage one ({pipeline.stages[0].name!r}?)."
    if len(scheduled) > 1:
        yield (
            f"stages {', '.join(map(repr, scheduled))} have schedules: only the entry stage keeps "
            "`schedule=`; move the others to `fallback=`."
        )


def _graph_problems(pipeline: Pipeline) -> Iterator[str]:
    stages = {s.name: s for s in pipeline.stages}
    edges = {n: [t for t in s.successors if t in stages] for n, s in stages.items()}
    entries = [s.name for s in pipeline.stages if s.schedule is not None]
    if len(entries) == 1:
        reached = _reach(edges, entries[0])
        for name in stages:
            if name not in reached:
                yield f"stage {name!r} cannot be reached from {entries[0]!r}: route one to it, or drop it."
    ends = {n for n, s in stages.items() if any(isinstance(t, End) for t in s.routes.values())}
    for name in stages:
        if not _reach(edges, name) & ends:
            yield f"stage {name!r} leads to no end: route a stage behind it to END."
    unbounded = {
        n: [t for t in targets if stages[t].max_visits is None]
        for n, targets in edges.items()
        if stages[n].max_visits is None
    }
    for name, targets in unbounded.items():
        if any(name in _reach(unbounded, t) for t in targets):
            yield (
                f"stage {name!r} is part of a loop without a bound: give one of its stages max_visits= "
                "(and after_max_visits=)."
            )
            return


def _reach(edges: Mapping[str, list[str]], start: str) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        for target in edges.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen

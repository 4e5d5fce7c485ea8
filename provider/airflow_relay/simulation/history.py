"""Fit a scenario to recorded history: stage times, failure rates, outcomes and arrivals as they were.

The observations themselves are the distribution (no shape is assumed): a simulated run draws from the
recorded times. So the twin says what would have happened with other limits to work like that of the recorded
days, and nothing about work that was never seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, RunResult
from airflow_relay.simulation.scenario import Scenario

FEW: Final = 10
"""Fewer runs of a stage are told as a weak basis."""

KEPT: Final = 2_000
"""Times of a stage that are kept, evenly chosen from the sorted ones."""


class HistoryError(Exception):
    """The history is too thin to simulate from; the text says what is missing."""


class ObservedRun(Protocol):
    """A closed run as ``ledger.history`` gives it."""

    @property
    def pipeline(self) -> str: ...
    @property
    def stage(self) -> str: ...
    @property
    def granted_at(self) -> datetime: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def closed_at(self) -> datetime: ...
    @property
    def result(self) -> RunResult | None: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def error_class(self) -> str | None: ...
    @property
    def tokens(self) -> int: ...


class ObservedArrivals(Protocol):
    """A pipeline's registrations as ``ledger.history`` gives them."""

    @property
    def pipeline(self) -> str: ...
    @property
    def items(self) -> int: ...


@dataclass
class _Seen:
    """What was observed of one stage."""

    minutes: list[float] = field(default_factory=list)
    failed_minutes: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: int = 0

    @property
    def runs(self) -> int:
        return len(self.minutes) + len(self.failed_minutes)


@dataclass(frozen=True)
class Fit:
    """A scenario fitted to history, and what a person should know about it."""

    scenario: Scenario
    notes: tuple[str, ...]


def fit(
    pipelines: Mapping[str, Pipeline],
    runs: Iterable[ObservedRun],
    arrivals: Sequence[ObservedArrivals],
    *,
    days: float,
    limits: Mapping[str, int] | None = None,
    only: str | None = None,
) -> Fit:
    """Build a scenario in which work like the recorded one comes.

    :param days: how many days the records span.
    :param limits: effective limits beside the declared ones (``relay_limits``).
    :param only: a pipeline's name; left out: every pipeline that had work.
    :raises HistoryError: no pipeline has finished runs and arrivals.
    """
    seen: dict[tuple[str, str], _Seen] = {}
    latencies: list[float] = []
    for run in runs:
        _observe(seen.setdefault((run.pipeline, run.stage), _Seen()), run)
        latencies.append(max(0.0, (run.started_at - run.granted_at).total_seconds()))
    came = {a.pipeline: a.items for a in arrivals}
    chosen = [
        p
        for name, p in sorted(pipelines.items())
        if only in (None, name) and came.get(name) and any((name, s.name) in seen for s in p.stages)
    ]
    if not chosen:
        raise HistoryError(
            f"The ledger has no finished runs{f' of {only!r}' if only else ''} in the last {days:.0f} days: "
            "there is nothing to fit stage times to. Let it work for some days, or simulate a scenario file."
        )
    notes: list[str] = []
    tables = {p.name: _pipeline(p, seen, came[p.name] / days, notes) for p in chosen}
    needed = {AIRFLOW_RUNS_KEY} | {key for p in chosen for s in p.stages for key in p.keys(s.name)}
    data = {
        "name": "ledger",
        "title": f"{', '.join(tables)} as recorded in the last {days:.1f} days",
        "document": "fitted to the ledger",
        "pipelines": tables,
        "latency": {"start_seconds": _sample(latencies, "recorded: grant to first task")},
        "models": [
            {
                "name": "today",
                "kind": "relay",
                "title": "Today's limits",
                "limits": {key: limit for key, limit in (limits or {}).items() if key in needed},
            }
        ],
    }
    return Fit(Scenario.model_validate(data), tuple(notes))


def _observe(seen: _Seen, run: ObservedRun) -> None:
    minutes = max(0.0, (run.closed_at - run.started_at).total_seconds() / 60)
    seen.tokens += run.tokens
    if run.result in (RunResult.SUCCESS, RunResult.SKIPPED):
        seen.minutes.append(minutes)
        if run.outcome is not None:
            seen.outcomes[run.outcome] += 1
    else:
        seen.failed_minutes.append(minutes)
        seen.errors[run.error_class or ErrorClass.UNKNOWN.value] += 1


def _pipeline(
    pipeline: Pipeline, seen: Mapping[tuple[str, str], _Seen], per_day: float, notes: list[str]
) -> dict[str, Any]:
    declared = pipeline.to_json()
    return {
        "klass": pipeline.klass.value,
        "timezone": pipeline.timezone,
        "limits": dict(pipeline.limits),
        "max_in_progress": pipeline.max_in_progress,
        "arrivals": {"per_day": {"value": round(per_day, 4), "source": "recorded registrations"}},
        "stages": [
            _stage(pipeline.name, stage, seen.get((pipeline.name, stage["name"])), notes)
            for stage in declared["stages"]
        ],
    }


def _stage(
    pipeline: str, declared: Mapping[str, Any], seen: _Seen | None, notes: list[str]
) -> dict[str, Any]:
    where = f"{pipeline}.{declared['name']}"
    kept = ("name", "schedule", "limit", "keys", "priority", "max_visits", "after_max_visits", "window")
    timeout = declared["timeout"]
    table: dict[str, Any] = {
        **{name: declared[name] for name in kept},
        "timeout_minutes": None if timeout is None else timeout / 60,
        "to": declared["to"] if declared["router"] else declared["to"]["default"],
    }
    if seen is None or not seen.minutes:
        notes.append(f"{where}: no successful run is recorded, so it is taken to take no time.")
        seen = seen or _Seen()
    elif seen.runs < FEW:
        notes.append(f"{where}: only {seen.runs} runs are recorded.")
    table["minutes"] = _sample(seen.minutes, f"{len(seen.minutes)} recorded runs")
    if seen.failed_minutes:
        table["failure_rate"] = {
            "value": len(seen.failed_minutes) / seen.runs,
            "source": f"{len(seen.failed_minutes)} of {seen.runs} recorded runs",
        }
        table["failure_classes"] = dict(seen.errors)
        table["failure_minutes"] = _sample(seen.failed_minutes, "recorded runs")
    if seen.runs:
        table["tokens"] = {"value": seen.tokens / seen.runs, "source": "mean of the recorded jobs"}
    if declared["router"]:
        table["outcomes"] = _outcomes(where, declared["to"], seen, notes)
    return table


def _outcomes(where: str, routes: Mapping[str, str], seen: _Seen, notes: list[str]) -> dict[str, float]:
    known = {name: count for name, count in seen.outcomes.items() if name in routes}
    if not known:
        notes.append(f"{where}: no outcome is recorded, so each route is taken equally often.")
        known = dict.fromkeys(routes, 1)
    total = sum(known.values())
    return {name: count / total for name, count in known.items()}


def _sample(values: Sequence[float], source: str) -> dict[str, Any]:
    if not values:
        return {"value": 0, "assumption": "nothing is recorded"}
    ordered = sorted(values)
    if len(ordered) > KEPT:
        ordered = [ordered[round(i * (len(ordered) - 1) / (KEPT - 1))] for i in range(KEPT)]
    return {"sample": ordered, "source": source}

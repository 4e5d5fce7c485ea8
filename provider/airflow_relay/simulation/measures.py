"""Named figures of one simulated run: what claims and comparisons are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from airflow_relay.simulation.recorder import DAY, Recorder
from airflow_relay.simulation.scenario import Scenario


@dataclass(frozen=True)
class Measure:
    """A figure and how it is read off a run."""

    title: str
    unit: str
    of: Callable[[Recorder], float]


def _per_day(count: float, r: Recorder) -> float:
    return count / r.days


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _of_day(counts: Mapping[int, int], r: Recorder, *, bad: bool) -> float:
    """Mean of a day, the first day left out: its items have had no time to get through."""
    days = [d for d in range(1, r.days) if (d in r.bad_days) is bad]
    return fmean(counts.get(d, 0) for d in days) if days else float("nan")


def _wait(r: Recorder, stage: str) -> float:
    sample = r.stage_wait.get(stage)
    return sample.median if sample is not None else float("nan")


MEASURES: Final[Mapping[str, Measure]] = {
    "end_to_end_median": Measure("end-to-end, median", "h", lambda r: r.end_to_end.median),
    "end_to_end_mean": Measure("end-to-end, mean", "h", lambda r: r.end_to_end.mean),
    "end_to_end_p95": Measure("end-to-end, p95", "h", lambda r: r.end_to_end.p95),
    "end_to_end_low": Measure("end-to-end, fastest", "h", lambda r: r.end_to_end.quantile(0)),
    "end_to_end_high": Measure("end-to-end, slowest", "h", lambda r: r.end_to_end.quantile(1)),
    "missed_share": Measure(
        "items that missed a slot", "%", lambda r: _share(r.missed, r.done + r.discarded)
    ),
    "interventions": Measure("interventions a day", "", lambda r: _per_day(r.interventions.total(), r)),
    "published": Measure("published a day", "", lambda r: _per_day(r.done, r)),
    "published_good_day": Measure(
        "published on a healthy day", "", lambda r: _of_day(r.published, r, bad=False)
    ),
    "published_bad_day": Measure(
        "published on a day with an outage", "", lambda r: _of_day(r.published, r, bad=True)
    ),
    "same_day_bad_day": Measure(
        "of a day with an outage: come and published", "", lambda r: _of_day(r.same_day, r, bad=True)
    ),
    "dispatches": Measure("dispatches a day", "", lambda r: _per_day(r.extra["dispatches"], r)),
    "idle_dispatches": Measure(
        "dispatches of idle work a day", "", lambda r: _per_day(r.extra["idle_dispatches"], r)
    ),
    "firings": Measure("timer firings a day", "", lambda r: _per_day(r.extra["firings"], r)),
    "empty_firings": Measure(
        "firings that found nothing", "%", lambda r: _share(r.extra["empty_firings"], r.extra["firings"])
    ),
    "timeouts": Measure("timeouts a day", "", lambda r: _per_day(r.timeouts, r)),
    "timeout_share": Measure(
        "dispatches that timed out", "%", lambda r: _share(r.timeouts, r.extra["dispatches"])
    ),
    "wasted_minutes": Measure("agent time wasted", "min a day", lambda r: _per_day(r.wasted_seconds / 60, r)),
    "most_calls": Measure("agent calls at once, most", "", lambda r: r.extra["most_calls"]),
    "calls_in_window": Measure("critic calls in two hours, most", "", lambda r: r.extra["calls_in_window"]),
    "attempts": Measure("recovery attempts", "", lambda r: r.attempts),
    "dead_letters": Measure("dead letters", "", lambda r: r.dead_letters),
    "failed_runs": Measure("failed runs", "", lambda r: r.failed_runs),
    "tokens": Measure("tokens", "", lambda r: r.tokens),
    "wasted_tokens": Measure("tokens burnt in failed runs", "", lambda r: r.wasted_tokens),
    "work_in_progress": Measure("items in progress, mean", "", lambda r: r.wip.mean(r.days * DAY)),
    "left_over": Measure("items not finished at the end", "", lambda r: r.registered - r.done - r.discarded),
    "start_hours": Measure("consolidation starts after", "h", lambda r: _wait(r, "start")),
    "idle_hours": Measure("tracks done, consolidation waits", "h", lambda r: _wait(r, "idle")),
    "polls": Measure("polls a night, mean", "", lambda r: r.polls.mean),
    "polls_median": Measure("polls a night, median", "", lambda r: r.polls.median),
    "polls_high": Measure("polls a night, most", "", lambda r: r.polls.quantile(1)),
    "bailed_share": Measure(
        "nights without a consolidation", "%", lambda r: _share(r.extra["bailed_out"], r.registered)
    ),
}
"""Name → measure. Scenario files and ``-o json`` use the names."""


def bad_days(scenario: Scenario, days: int) -> frozenset[int]:
    """Days on which some stage is down."""
    found: set[int] = set()
    for outage in scenario.outages:
        begin, length = outage.at_hours.constant, outage.hours.constant
        every = None if outage.every_days is None else outage.every_days.constant * 24
        while begin < days * 24:
            found.update(range(int(begin // 24), int((begin + length) // 24) + 1))
            if every is None:
                break
            begin += every
    return frozenset(found)

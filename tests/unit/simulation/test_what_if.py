"""Fit to history, compare with a change, name the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.states import RunResult
from airflow_relay.simulation import what_if
from airflow_relay.simulation.history import HistoryError, fit
from airflow_relay.simulation.scenario_file import load
from airflow_relay.simulation.what_if import Changes, bottleneck, compare

NOW = datetime(2026, 6, 20, tzinfo=timezone.utc)

PIPELINE = Pipeline(
    "newsroom",
    [
        Stage("research", to="critique", schedule="0 * * * *"),
        Stage("critique", to={"good": END, "poor": "research"}, limit=1, max_visits=3, after_max_visits=END),
    ],
)


@dataclass(frozen=True)
class Ran:
    stage: str
    minutes: float
    result: RunResult = RunResult.SUCCESS
    outcome: str | None = None
    error_class: str | None = None
    tokens: int = 0
    pipeline: str = "newsroom"
    granted_at: datetime = NOW

    @property
    def started_at(self) -> datetime:
        return self.granted_at + timedelta(seconds=6)

    @property
    def closed_at(self) -> datetime:
        return self.started_at + timedelta(minutes=self.minutes)


@dataclass(frozen=True)
class Came:
    items: int
    pipeline: str = "newsroom"


def history() -> list[Ran]:
    critiques = [
        Ran("critique", 40 + n, outcome="poor" if n % 5 == 0 else "good", tokens=900) for n in range(20)
    ]
    failed = [Ran("critique", 1, RunResult.FAILED, error_class="overloaded", tokens=100)] * 4
    return [Ran("research", 10 + n % 3) for n in range(30)] + critiques + failed


def fitted(**options):
    return fit({"newsroom": PIPELINE}, history(), [Came(300)], days=15, **options)


def no_changes() -> Changes:
    return Changes(limits={}, schedules={}, outages={})


def test_stage_times_failures_outcomes_tokens_and_arrivals_are_those_of_the_records():
    spec = fitted().scenario.pipelines["newsroom"]
    research, critique = spec.stages
    assert sorted(set(research.minutes.sample)) == [10, 11, 12]
    assert (min(critique.minutes.sample), max(critique.minutes.sample)) == (40, 59)
    assert critique.failure_rate.value == pytest.approx(4 / 24)
    assert {k.value: v for k, v in critique.failure_classes.items()} == {"overloaded": 4}
    assert critique.failure_minutes.quantile()(0.5) == 1
    assert critique.tokens.value == pytest.approx((20 * 900 + 4 * 100) / 24)
    assert {k: q.value for k, q in critique.outcomes.items()} == pytest.approx({"poor": 0.2, "good": 0.8})
    assert spec.arrivals.per_day.value == 20
    assert fitted().scenario.latency.start_seconds.quantile()(0.5) == pytest.approx(6)


def test_the_declaration_comes_through_unchanged():
    again = fitted().scenario.pipelines["newsroom"].pipeline("newsroom")
    for stage in PIPELINE.stages:
        known = again.stage(stage.name)
        assert (known.routes, known.limit, known.schedule, known.max_visits) == (
            stage.routes,
            stage.limit,
            stage.schedule,
            stage.max_visits,
        )


def test_thin_evidence_is_told():
    few = fit({"newsroom": PIPELINE}, [Ran("research", 10)], [Came(5)], days=1)
    assert any("research: only 1 runs" in note for note in few.notes)
    assert any("critique: no successful run" in note for note in few.notes)
    assert any("critique: no outcome is recorded" in note for note in few.notes)


def test_without_history_there_is_nothing_to_fit():
    with pytest.raises(HistoryError, match="no finished runs"):
        fit({"newsroom": PIPELINE}, [], [Came(5)], days=1)
    with pytest.raises(HistoryError, match="of 'other'"):
        fitted(only="other")


def test_the_bottleneck_is_named_and_a_higher_limit_relieves_it():
    changes = Changes(limits={"newsroom.critique": 3}, schedules={}, outages={})
    result = compare(fitted().scenario, changes, days=10, seed=1, seeds=2)
    today, changed = (result.outcomes[name] for name in (what_if.TODAY, what_if.CHANGED))
    assert bottleneck(today).startswith("The bottleneck is newsroom.critique (limit 1, in use")
    assert today.waiting["newsroom.critique"] > 3 * changed.waiting["newsroom.critique"]
    assert changed.end_to_end.median < today.end_to_end.median
    assert changed.limits["newsroom.critique"] == 3


def test_a_limit_of_nothing_is_the_bottleneck():
    changes = Changes(limits={"newsroom.critique": 0}, schedules={}, outages={})
    result = compare(fitted().scenario, changes, days=3, seed=1, seeds=1)
    assert bottleneck(result.outcomes[what_if.CHANGED]).startswith(
        "The bottleneck is newsroom.critique (limit 0): on average"
    )


def test_of_todays_limits_those_are_taken_that_the_chosen_pipelines_need():
    limits = {"newsroom.critique": 2, "airflow.runs": 9, "another.stage": 1}
    (today,) = fitted(limits=limits).scenario.models
    assert today.limits == {"newsroom.critique": 2, "airflow.runs": 9}


def test_where_nothing_waits_the_longest_stage_is_named():
    scenario = load("content")
    result = compare(scenario, no_changes(), days=10, seed=1, seeds=1)
    assert list(result.outcomes) == [what_if.TODAY]
    today = result.outcomes[what_if.TODAY]
    longest = max(today.stage_busy, key=lambda stage: today.stage_busy[stage])
    assert bottleneck(today) == (
        f"No limit holds anything up. The time goes into the work itself, most of it into {longest}."
    )


def test_another_schedule_changes_when_work_is_found():
    changes = Changes(limits={}, schedules={"research": "0 0 * * *"}, outages={})
    result = compare(fitted().scenario, changes, days=10, seed=1, seeds=1)
    waits = {name: o.stage_wait["intake"].mean for name, o in result.outcomes.items()}
    assert waits["today"] < 1
    assert waits["changed"] > 8


def test_an_outage_hurts():
    changes = Changes(limits={}, schedules={}, outages={"art_direction": 6})
    result = compare(load("content"), changes, days=5, seed=1, seeds=4)
    today, changed = result.outcomes["today"].figures, result.outcomes["changed"].figures
    assert changed["failed_runs"].mean > today["failed_runs"].mean
    assert changed["end_to_end_mean"].mean > today["end_to_end_mean"].mean


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            Changes(limits={"newsroom.critik": 2}, schedules={}, outages={}),
            "Did you mean 'newsroom.critique'",
        ),
        (
            Changes(limits={}, schedules={"critique": "0 * * * *"}, outages={}),
            "Entry stages: newsroom.research",
        ),
        (
            Changes(limits={}, schedules={}, outages={"drafts": 6}),
            "'drafts' is no stage. Stages: newsroom.research",
        ),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(changes, told):
    with pytest.raises(what_if.ChangeError, match=told):
        compare(fitted().scenario, changes, days=1, seed=1, seeds=1)


def test_a_scenario_without_relay_has_no_limits_to_change():
    with pytest.raises(what_if.ChangeError, match="no model of kind 'relay'"):
        compare(load("overnight"), no_changes(), days=1, seed=1, seeds=1)


def test_changes_are_read_as_people_write_them():
    assert what_if.parse_limit("newsroom.critique=2") == ("newsroom.critique", 2)
    assert what_if.parse_schedule('research="0 */2 * * *"') == ("research", "0 */2 * * *")
    assert what_if.parse_outage("art_direction=90m") == ("art_direction", 1.5)
    assert what_if.parse_outage("art_direction=2d") == ("art_direction", 48)
    for parse, text in (
        (what_if.parse_limit, "a=b"),
        (what_if.parse_schedule, "a"),
        (what_if.parse_outage, "a=6"),
    ):
        with pytest.raises(ValueError, match="write"):
            parse(text)

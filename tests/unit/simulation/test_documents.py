"""The documents' tables, with few seeds: each claim within its range, as the chapter of results says."""

from __future__ import annotations

import math

import pytest

from airflow_relay.simulation.experiment import estimate, simulate
from airflow_relay.simulation.report.figures import verdicts
from airflow_relay.simulation.scenario import Scenario
from airflow_relay.simulation.scenario_file import load


def small(name: str, *models: str) -> Scenario:
    """The scenario with the models that its claims need."""
    scenario = load(name)
    claimed = {m for c in scenario.claims for m in (c.model, c.literal)} | set(models)
    return scenario.model_copy(update={"models": tuple(m for m in scenario.models if m.name in claimed)})


@pytest.mark.parametrize(
    ("name", "seeds", "days"), [("content", 8, 30), ("bad_day", 8, 30), ("overnight", 3, 60)]
)
def test_the_claims_hold_within_their_ranges(name, seeds, days):
    result = simulate(small(name), days=days, seeds=seeds)
    outside = [f"{v.claim.text}: {v.estimate.mean:.2f}" for v in verdicts(result) if not v.holds]
    assert not outside


def test_the_newsrooms_claims_hold_within_their_ranges():
    result = simulate(small("newsroom"), days=14, seeds=2)
    outside = [f"{v.claim.text}: {v.estimate.mean:.2f}" for v in verdicts(result) if not v.holds]
    assert not outside


def test_where_a_number_does_not_follow_from_the_stated_inputs_that_is_shown():
    found = {v.claim.text: v for v in verdicts(simulate(small("content"), days=20, seeds=2))}
    before = found["End-to-end time before"]
    assert not before.literal_holds
    assert 5 < before.literal.mean < 6
    missed = found["Items that miss a slot, before"]
    assert missed.literal.mean == 0
    assert not missed.literal_holds
    assert found["End-to-end time after"].literal_holds


def test_hourly_slots_take_five_hours_and_the_last_stage_whatever_the_stages_take():
    scenario = small("content")
    result = simulate(scenario, days=20, seeds=2)
    hours = result.outcomes["cron_literal"].end_to_end
    assert hours.low >= 5 + 8 / 60
    assert hours.high <= 5 + 40 / 60


def test_all_models_meet_the_same_items():
    result = simulate(small("content"), days=20, seeds=1)
    came = {o.example.registered for o in result.outcomes.values()}
    assert len(came) == 1


def test_the_doom_spiral_scenario_explodes_without_its_rules():
    scenario = load("doom_spiral")
    result = simulate(scenario, days=8, seeds=1)
    burnt = {name: o.figures["wasted_tokens"].mean for name, o in result.outcomes.items()}
    assert burnt["all_rules"] < burnt["no_breaker"] < burnt["no_cap"] < burnt["no_rules"]
    assert burnt["no_rules"] > 10 * burnt["all_rules"]


def test_an_estimate_has_the_confidence_interval_of_students_t():
    known = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (known.mean, known.least, known.most) == (3, 1, 5)
    assert known.half_width == pytest.approx(1.963, rel=0.01)
    assert estimate([float("nan"), 2.0]).mean == 2
    assert math.isnan(estimate([]).mean)

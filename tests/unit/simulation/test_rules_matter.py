"""The twin runs the rules of core and no copy: each rule that is taken out there changes the result here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.simulation.scenarios import chain, relay, run

from airflow_relay.core import backpressure, barrier, breaker, dispatch, lifecycle, recovery
from airflow_relay.core.breaker import Step
from airflow_relay.core.states import WaitReason
from airflow_relay.simulation.experiment import simulate_once
from airflow_relay.simulation.scenario_file import load

POISONED = {"failure_rate": 0.3, "failure_classes": {"content_policy": 1}}
NOBODY = {"notice_hours": 100_000}
WEEK = {"stage": "second", "at_hours": 0, "hours": 168}


def without(monkeypatch: pytest.MonkeyPatch, *rules: str) -> None:
    """Take rules out of the sweep."""
    left = tuple(rule for rule in recovery._RULES if rule.__name__ not in rules)
    assert len(left) == len(recovery._RULES) - len(rules)
    monkeypatch.setattr(recovery, "_RULES", left)


def test_without_the_rule_on_errors_that_stay_each_poisoned_item_is_tried_for_ever(monkeypatch):
    scenario = chain(second=POISONED, people=NOBODY)
    # A failure that no retry can mend comes to the sweep only when nobody reported it as such.
    monkeypatch.setattr("airflow_relay.simulation.world.RETRYABLE", frozenset(recovery.NOT_RETRYABLE))
    bounded = run(scenario, days=30)
    assert bounded.attempts == 0
    assert bounded.dead_letters > 10
    without(monkeypatch, "_not_retryable", "_at_the_cap")
    spiral = run(scenario, days=30)
    assert spiral.dead_letters == 0
    assert spiral.attempts > 50 * bounded.dead_letters
    assert spiral.wasted_tokens > 50 * bounded.wasted_tokens


def test_the_doom_spiral_of_an_outage(monkeypatch):
    """A stage is down for a week. Attempts and tokens burnt are bounded by the rules, and explode without."""
    scenario = chain(outages=[WEEK], people=NOBODY, arrivals={"per_intake": 5})
    rules = run(scenario, days=7)
    monkeypatch.setattr(breaker, "record", lambda b, **_: Step(breaker=b))
    no_breaker = run(scenario, days=7)
    without(monkeypatch, "_at_the_cap")
    no_cap = run(scenario, days=7)
    without(monkeypatch, "_cooldown")
    naive = relay(rules={"stale_hours": 0.001, "refires_per_sweep": 1_000_000}, sweep_hours=0.5)
    no_rules = run(scenario.model_copy(update={"models": chain(models=naive).models}), days=7)

    # Three attempts a calendar day: an item that is never tried three times before midnight gets three more.
    assert no_breaker.attempts <= 2 * 3 * no_breaker.registered
    assert rules.attempts < no_breaker.attempts / 2
    assert rules.wasted_tokens < no_breaker.wasted_tokens < no_cap.wasted_tokens < no_rules.wasted_tokens
    assert no_cap.attempts > 2 * no_breaker.attempts
    assert no_rules.attempts > 10 * rules.attempts
    assert no_rules.wasted_tokens > 10 * rules.wasted_tokens


def test_the_cooldown_is_asked(monkeypatch):
    scenario = chain(
        outages=[WEEK],
        people=NOBODY,
        models=[
            {
                "name": "relay",
                "kind": "relay",
                "title": "a long cooldown",
                "rules": {"cooldown_hours": 20, "attempts_per_day": 1000},
                "breaker_threshold": 10_000,
            }
        ],
    )
    cooled = run(scenario, days=7)
    without(monkeypatch, "_cooldown")
    assert run(scenario, days=7).attempts > 3 * cooled.attempts


def test_the_cap_counts_what_charge_says(monkeypatch):
    scenario = chain(outages=[WEEK], people=NOBODY)
    capped = run(scenario, days=7)
    monkeypatch.setattr(recovery, "charge", lambda item, **_: {})
    assert run(scenario, days=7).dead_letters < capped.dead_letters


def test_the_order_of_the_dispatcher_decides_who_waits(monkeypatch):
    busy = chain(
        first={"schedule": "0 * * * *", "minutes": 10, "keys": ["agents"]},
        second={"keys": ["agents"]},
        arrivals={"per_intake": 1},
    )
    data = busy.model_dump(mode="json", exclude_none=True)
    data["pipelines"]["chain"]["limits"] = {"agents": 1}
    scenario = type(busy).model_validate(data)
    finish_first = run(scenario, days=3)

    def start_first(candidate, now):
        return (candidate.rank, candidate.ready_since, candidate.item_id)

    monkeypatch.setattr(dispatch, "order_key", start_first)
    assert run(scenario, days=3).end_to_end.values != finish_first.end_to_end.values


def test_the_gates_of_the_dispatcher_decide_what_starts(monkeypatch):
    scenario = chain()
    monkeypatch.setattr(dispatch, "_gate", lambda *_: WaitReason.HOLD)
    assert run(scenario).done == 0


def test_the_intake_asks_cores_backpressure(monkeypatch):
    scenario = chain(first={"schedule": "0 * * * *", "minutes": 90}, arrivals={"per_intake": 1})
    assert run(scenario, days=1).extra["intakes_skipped"] > 0
    monkeypatch.setattr(backpressure, "must_wait", lambda *_: None)
    assert run(scenario, days=1).extra["intakes_skipped"] == 0


def test_the_life_of_an_item_is_cores(monkeypatch):
    done = lifecycle.completed

    def everything_ends_here(item, **kwargs):
        end = lifecycle.enter(item, pipeline=kwargs["pipeline"], target=lifecycle.End.DONE, now=kwargs["now"])
        change = done(item, **kwargs)
        return replace(change, set={**change.set, **end.set})

    monkeypatch.setattr(lifecycle, "completed", everything_ends_here)
    assert run(chain()).end_to_end.high == pytest.approx(0.5)


def test_the_orchestrator_polls_by_the_barrier(monkeypatch):
    scenario = load("overnight")
    polling = scenario.model("polling")
    early = simulate_once(scenario, polling, days=10, seed=1)
    monkeypatch.setattr(barrier, "_reported_end", lambda *_: None)
    late = simulate_once(scenario, polling, days=10, seed=1)
    assert late.stage_wait["start"].mean > early.stage_wait["start"].mean
    assert late.extra["tapped_out"] > 0

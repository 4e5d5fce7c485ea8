"""Breakers and adaptive limits through the ledger. Both databases."""

from __future__ import annotations

import pytest

from airflow_relay.core.breaker import BreakerState
from airflow_relay.core.item import Run
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.hooks import conditions as ring
from airflow_relay.ledger import breakers, closing, governing, items
from support.pipelines import Driver
from support.variables import Airflow, keys_of, texts, tick, waiting


def failing(drive: Driver, *errors: str) -> list[Run]:
    """Five items, granted; each fails with the next of the errors."""
    granted = drive.intake(*[f"bad-{n}" for n in range(len(errors))])
    assert len(granted) == len(errors)
    for run, error in zip(granted, errors, strict=True):
        drive.ledger.confirm([run.id], drive.now)
        drive.guard(run)
        drive.end(run, result=RunResult.FAILED, error=error)
        drive.later(minutes=5)
    return granted


def breaker(drive: Driver) -> BreakerState:
    with drive.ledger.read() as tx:
        found = breakers.load_all(tx).get(("line", "first"))
    return BreakerState.CLOSED if found is None else found.state


@pytest.fixture
def broken(drive: Driver, airflow: Airflow) -> Driver:
    """The breaker of the first stage is open and 20 items wait behind it."""
    failing(drive, "overloaded", "timeout", "network", "server_error", "rate_limit")
    assert breaker(drive) is BreakerState.OPEN
    waiting(drive, *[f"item-{n:02}" for n in range(20)])
    return drive


def test_five_systemic_failures_within_an_hour_open_the_breaker_and_alert_once(broken: Driver) -> None:
    assert len(texts(broken.ledger, "breaker:")) == 1


def test_failures_spread_over_more_than_an_hour_open_no_breaker(drive: Driver, airflow: Airflow) -> None:
    for n in range(5):
        (run,) = drive.intake(f"bad-{n}")
        drive.end(run, result=RunResult.FAILED, error="overloaded")
        drive.later(minutes=16)
    assert breaker(drive) is BreakerState.CLOSED


def test_content_policy_failures_open_no_breaker(drive: Driver, airflow: Airflow) -> None:
    failing(drive, *["content_policy"] * 5)
    assert breaker(drive) is BreakerState.CLOSED
    assert len(drive.intake("next")) == 1


def test_waiting_behind_an_open_breaker_costs_no_attempt(broken: Driver) -> None:
    for _ in range(4):
        assert tick(broken) == []
    waited = [broken.item(f"item-{n:02}") for n in range(20)]
    assert {(i.state, i.attempts, i.epoch, i.last_attempt_at) for i in waited} == {
        (ItemState.READY, 0, 0, None)
    }


def test_work_wakes_when_the_breakers_pause_ends_with_exactly_one_probe(broken: Driver) -> None:
    broken.later(minutes=25)
    assert keys_of(broken, tick(broken)) == ["item-00"]
    assert breaker(broken) is BreakerState.HALF_OPEN
    assert tick(broken) == []
    assert broken.intake("late") == []


def test_a_probe_that_is_lost_frees_its_place_for_the_next(broken: Driver) -> None:
    broken.later(minutes=25)
    (probe,) = tick(broken)
    broken.guard(probe)
    lost = broken.end(probe, result=RunResult.LOST)  # its worker was killed; the tick found out
    assert keys_of(broken, list(lost.grants)) == ["item-01"]
    assert broken.item("item-00").attempts == 0
    assert breaker(broken) is BreakerState.HALF_OPEN


def test_a_probe_that_is_taken_back_frees_its_place_for_the_next(broken: Driver, airflow: Airflow) -> None:
    broken.later(minutes=25)
    (probe,) = tick(broken)
    with broken.ledger.dispatcher() as tx:
        assert closing.withdraw(tx, probe.id, pipeline=broken.pipeline, why="paused", now=broken.now)
    assert len(tick(broken)) == 1


def test_a_failed_probe_doubles_the_pause(broken: Driver) -> None:
    broken.later(minutes=25)
    (probe,) = tick(broken)
    broken.end(probe, result=RunResult.FAILED, error="overloaded")
    broken.later(minutes=50)
    assert tick(broken) == []
    assert len(tick(broken)) == 1
    assert len(texts(broken.ledger, "breaker:")) == 1, "the same outage alerts once"


def test_a_closing_breaker_fills_the_free_slots_in_the_order_of_priority(
    drive: Driver, airflow: Airflow
) -> None:
    airflow.set("relay_limits", {"line.first": 5})
    failing(drive, *["overloaded"] * 5)
    found = [{"key": f"item-{n}", "priority": n % 4} for n in range(8)]
    drive.conditions = ring.read_conditions(drive.ledger, drive.now)
    assert drive.ledger.intake(drive.pipeline, found, drive.conditions, drive.now)[1] == []
    drive.later(minutes=25)
    (probe,) = tick(drive)
    assert keys_of(drive, [probe]) == ["item-3"]
    granted = [run for run in drive.serve(probe) if run.stage == "first"]
    assert keys_of(drive, granted) == ["item-7", "item-2", "item-6", "item-1", "item-5"]
    assert breaker(drive) is BreakerState.CLOSED


# Limits that adapt

ADAPTIVE = {"line.first": {"start": 4, "min": 1, "max": 6, "interval": 60}}


@pytest.fixture
def adaptive(drive: Driver, airflow: Airflow) -> Driver:
    airflow.set("relay_limits", ADAPTIVE)
    drive.conditions = ring.read_conditions(drive.ledger, drive.now)
    return drive


def limit(drive: Driver) -> int:
    with drive.ledger.read() as tx:
        (figures,) = governing.adaptive_figures(tx, drive.conditions.adaptive)
    return figures.limit


def test_a_burst_of_overload_halves_the_limit_in_the_transaction_that_closes_the_run(
    adaptive: Driver,
) -> None:
    granted = adaptive.intake(*[f"i{n}" for n in range(12)])
    assert len(granted) == 4
    assert len(adaptive.end(granted[0], result=RunResult.FAILED, error="rate_limit").grants) == 1
    after = adaptive.end(granted[1], result=RunResult.FAILED, error="overloaded").grants
    assert (limit(adaptive), after) == (2, ()), "three runs are left of a limit of two: nothing new"
    assert any("adapts, 4 to 2: 2 rate-limit or overload errors" in line for line in adaptive.log("i1"))


def test_an_error_that_a_retry_will_mend_presses_the_limit_once(adaptive: Driver) -> None:
    granted = adaptive.intake(*[f"i{n}" for n in range(4)])
    for run in granted[:2]:
        with adaptive.ledger.dispatcher() as tx:
            closing.record_error(
                tx,
                run,
                error_class="rate_limit",
                reason="429",
                task_id="ask",
                will_retry=True,
                now=adaptive.now,
                adaptive=adaptive.conditions.adaptive,
            )
    assert limit(adaptive) == 2
    adaptive.later(minutes=2)
    adaptive.end(granted[0], result=RunResult.FAILED)
    adaptive.end(granted[1], result=RunResult.FAILED)
    assert limit(adaptive) == 2, "the run's end repeats what was recorded, and that was counted"


def test_steady_success_raises_the_limit_by_one_per_interval_up_to_its_bound(adaptive: Driver) -> None:
    granted = adaptive.intake(*[f"i{n}" for n in range(60)])
    seen = [limit(adaptive)]
    while granted:
        run = granted.pop(0)
        adaptive.later(seconds=10)
        granted += [g for g in adaptive.end(run).grants if g.stage == "first"]
        assert adaptive.usage().get("line.first", 0) <= limit(adaptive)
        if limit(adaptive) != seen[-1]:
            seen.append(limit(adaptive))
    assert seen == [4, 5, 6]


def test_only_the_keys_that_a_run_holds_adapt(adaptive: Driver) -> None:
    (run,) = adaptive.intake("a")
    (second,) = adaptive.serve(run)
    before = limit(adaptive)
    for _ in range(3):
        adaptive.end(second, result=RunResult.FAILED, error="rate_limit")
        (second,) = again(adaptive, "a")
    assert limit(adaptive) == before


def again(drive: Driver, key: str) -> list[Run]:
    """Ready once more, as the sweep would do it, and dispatch."""
    from airflow_relay.core import lifecycle
    from airflow_relay.core.states import EventKind

    with drive.ledger.dispatcher() as tx:
        item = items.locked(tx, items.find(tx, key).id)
        change = lifecycle.ready_again(
            item, pipeline=drive.pipeline, kind=EventKind.RECOVERED, text="again", now=drive.now
        )
        items.perform(tx, item, change)
    return drive.dispatch()


def test_a_rule_that_changes_on_the_variables_page_moves_the_limit_into_its_bounds(
    adaptive: Driver, airflow: Airflow
) -> None:
    adaptive.intake(*[f"i{n}" for n in range(12)])
    airflow.set("relay_limits", {"line.first": {"start": 5, "min": 5, "max": 6}})
    assert len(tick(adaptive)) == 1
    assert adaptive.usage()["line.first"] == 5

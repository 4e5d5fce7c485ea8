"""Relay in simulated time: times by hand, lost triggers, crashes, outages, limits, people."""

from __future__ import annotations

import pytest
from tests.unit.simulation.scenarios import chain, relay, run, twin

from airflow_relay.core.breaker import BreakerState
from airflow_relay.simulation.recorder import DAY, HOUR


def test_a_chain_without_limits_takes_as_long_as_its_stages():
    recorder = run(chain())
    assert recorder.done == recorder.registered == 6
    assert recorder.end_to_end.low == recorder.end_to_end.high == pytest.approx(1.5)
    assert recorder.extra["dispatches"] == recorder.runs == 12
    assert recorder.tokens == 600


def test_latency_adds_to_every_stage():
    latency = {"start_seconds": 360, "hand_off_seconds": 180}
    assert run(chain(latency=latency)).end_to_end.mean == pytest.approx(1.5 + 2 * 0.15)


def test_a_limit_makes_the_second_item_wait_for_the_first():
    recorder = run(chain(second={"limit": 1}), days=1)
    assert sorted(recorder.end_to_end.values) == pytest.approx([1.5, 2.5])
    assert recorder.queued["chain.second"].mean(DAY) * DAY == pytest.approx(HOUR)
    assert recorder.used["chain.second"].mean(DAY) * DAY == pytest.approx(2 * HOUR)


def test_the_limit_of_the_variable_is_obeyed_as_well():
    recorder = run(chain(models=relay(limits={"chain.second": 1})), days=1)
    assert recorder.end_to_end.high == pytest.approx(2.5)


def test_a_stage_beyond_its_timeout_fails_with_a_timeout():
    recorder = run(chain(second={"timeout_minutes": 45}), days=1)
    assert recorder.timeouts == recorder.failed_runs > 0
    assert recorder.done == 0


def test_a_lost_trigger_is_sent_again_by_the_next_tick():
    recorder = run(chain(latency={"lost_triggers": 1.0}), days=2)
    assert recorder.done == 4
    assert recorder.extra["lost_triggers"] == 8
    # 8:00 → sent again at 8:05; done 8:35 → 8:40; done 9:40
    assert recorder.end_to_end.mean == pytest.approx(100 / 60)
    assert recorder.attempts == 0


def test_runs_that_die_without_telling_are_found_and_refired():
    recorder = run(chain(latency={"crashes": 0.3}), days=40)
    assert recorder.extra["crashes"] > 20
    assert recorder.attempts >= recorder.extra["crashes"] - recorder.dead_letters - 2
    assert recorder.done + recorder.discarded >= recorder.registered - 2


def test_without_the_sweep_a_failed_item_stays_where_it_is():
    scenario = chain(second={"failure_rate": 0.5}, models=relay(sweep_hours=None))
    recorder = run(scenario, days=30)
    assert recorder.attempts == 0
    assert recorder.done < recorder.registered
    with_sweep = run(chain(second={"failure_rate": 0.5}), days=30)
    assert with_sweep.done > recorder.done


def test_an_outage_opens_the_breaker_and_its_probe_closes_it():
    outage = {"stage": "second", "at_hours": 8, "hours": 6}
    scenario = chain(
        first={"schedule": "*/10 * * * *", "minutes": 1}, arrivals={"per_intake": 1}, outages=[outage]
    )
    during = twin(scenario, days=1)
    assert during.world.breakers[("chain", "second")].state is BreakerState.CLOSED
    assert 5 <= during.recorder.failed_runs < 15
    assert during.recorder.queued["breaker"].mean(DAY) > 1
    open_still = twin(
        chain(
            first={"schedule": "*/10 * * * *", "minutes": 1},
            arrivals={"per_intake": 1},
            outages=[{**outage, "hours": 100}],
        ),
        days=1,
    )
    assert open_still.world.breakers[("chain", "second")].state is not BreakerState.CLOSED


def test_an_item_that_must_not_be_retried_goes_to_a_person():
    failing = {"failure_rate": 0.3, "failure_classes": {"content_policy": 1}}
    scenario = chain(second=failing, people={"notice_hours": 1})
    recorder = run(scenario, days=30)
    assert recorder.attempts == 0
    assert recorder.dead_letters == recorder.failed_runs > 5
    assert recorder.interventions.total() == recorder.dead_letters
    assert recorder.done == recorder.registered


def test_a_person_may_give_items_up():
    failing = {"failure_rate": 1.0, "failure_classes": {"refusal": 1}}
    recorder = run(chain(second=failing, people={"notice_hours": 1, "gives_up": 1.0}), days=5)
    assert (recorder.done, recorder.discarded) == (0, 10)


def test_idle_work_waits_for_all_other_work_and_is_counted_apart():
    scenario = chain()
    idle = {
        "klass": "P3",
        "arrivals": {"per_intake": 1},
        "stages": [{"name": "only", "schedule": "0 8 * * *", "minutes": 10}],
    }
    data = scenario.model_dump(mode="json", exclude_none=True)
    data["pipelines"]["aaa_idle"] = idle
    data["pipelines"] = dict(sorted(data["pipelines"].items()))
    recorder = run(type(scenario).model_validate(data), days=2)
    assert recorder.registered == recorder.done == 4
    assert recorder.extra["idle_done"] == 2
    assert recorder.extra["idle_dispatches"] == 2
    assert recorder.end_to_end.mean == pytest.approx(1.5)


def test_the_intake_waits_while_an_earlier_one_is_in_the_entry_stage():
    scenario = chain(first={"schedule": "0 * * * *", "minutes": 90}, arrivals={"per_intake": 1})
    recorder = run(scenario, days=1)
    # At 0:00 one; at 1:00 it is still in the entry, so at 2:00 two; and so on, the one of 23:00 is left.
    assert recorder.extra["intakes_skipped"] == 12
    assert recorder.registered == 23


def test_arrivals_by_rate_are_picked_up_by_the_next_intake():
    recorder = run(chain(arrivals={"per_day": 10}), days=100)
    assert 850 < recorder.registered < 1150
    assert recorder.stage_wait["intake"].mean == pytest.approx(12, rel=0.1)


def test_a_window_holds_a_stage_back_until_it_opens():
    recorder = run(chain(second={"window": ["12:00", "18:00"]}), days=1)
    assert recorder.end_to_end.mean == pytest.approx(5.0)


def test_a_dispatcher_on_a_heartbeat_grants_at_its_ticks_alone():
    scenario = chain(models=relay(granted_at_ticks=True, tick_minutes=60))
    recorder = run(scenario, days=1)
    # 8:00 registered; whether the tick or the intake of 8:00 comes first, 9:00 at the latest
    assert recorder.end_to_end.mean in (pytest.approx(2.0), pytest.approx(3.0))


def test_routers_follow_their_outcomes_and_visits_are_bounded():
    scenario = chain(
        second={
            "to": {"ok": "@done", "again": "first", "bad": "@discarded"},
            "outcomes": {"ok": 0.5, "again": 0.3, "bad": 0.2},
            "max_visits": 2,
            "after_max_visits": "@done",
        }
    )
    recorder = run(scenario, days=200)
    assert recorder.done + recorder.discarded >= recorder.registered - 2
    assert 0.15 < recorder.discarded / recorder.registered < 0.32
    assert recorder.runs > 2 * recorder.registered


def test_nothing_is_kept_of_items_that_have_left():
    failing = {"failure_rate": 0.2, "failure_classes": {"content_policy": 1, "server_error": 2}}
    model = twin(chain(second=failing, people={"notice_hours": 1}), days=120)
    assert model.recorder.done > 200
    alive = set(model.world.items)
    assert len(alive) < 6
    kept = [model._tries, model._stuck, model.recorder.journeys, *(w.poisoned for w in model.work.values())]
    assert all(set(table) <= alive for table in kept)
    assert len(model.world.runs) == len(model.world.run_of) <= len(alive)


def test_the_same_seed_gives_the_same_run_and_another_one_does_not():
    scenario = chain(second={"failure_rate": 0.2, "minutes": {"uniform": [10, 90]}})
    one, same, other = (run(scenario, days=20, seed=s).end_to_end.values for s in (1, 1, 2))
    assert one == same != other

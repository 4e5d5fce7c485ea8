"""Cron schedules, people, blind timers and the agent service, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.scenarios import chain

from airflow_relay.simulation.agent_service import AgentService
from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.clock import Clock, cron_times
from airflow_relay.simulation.experiment import simulate_once
from airflow_relay.simulation.people import Person
from airflow_relay.simulation.recorder import DAY, HOUR, Level, Recorder
from airflow_relay.simulation.sample import KEPT, Sample
from airflow_relay.simulation.scenario import People, Scenario


def cron(*, days: int = 3, stages: dict[str, Any] | None = None, **options: Any) -> Recorder:
    schedules = {"first": ["0 8 * * *"], "second": ["0 9,13 * * *"], **options.pop("schedules", {})}
    model = {"name": "cron", "kind": "cron", "title": "cron", "schedules": schedules, **options}
    scenario = chain(models=[model], **(stages or {}))
    return simulate_once(scenario, scenario.models[0], days=days, seed=1)


def test_an_item_waits_for_the_next_firing():
    recorder = cron()
    assert recorder.done == 6
    assert recorder.end_to_end.low == recorder.end_to_end.high == pytest.approx(2.0)
    assert recorder.missed == 0
    assert recorder.extra["firings"] == 9
    assert recorder.extra["empty_firings"] == 3


def test_a_stage_that_runs_past_the_slot_makes_its_item_miss_it():
    recorder = cron(stages={"first": {"minutes": 61}})
    assert recorder.missed == 6
    assert recorder.end_to_end.mean == pytest.approx(6.0)


def test_a_firing_may_take_one_item_alone():
    recorder = cron(items_per_run=1)
    # Two items a day come and one a day is taken: each waits for those before it.
    assert recorder.end_to_end.values == pytest.approx([2.0, 26.0, 26.0])
    assert recorder.missed == 2


def test_a_stage_without_fire_times_follows_at_once():
    assert cron(schedules={"second": []}).end_to_end.mean == pytest.approx(1.5)


def test_what_gets_stuck_waits_for_a_person_who_starts_it_again():
    people = {"notice_hours": 2}
    stages = {"second": {"failure_rate": 0.5, "failure_minutes": 0}, "people": people}
    recorder = cron(days=40, stages=stages)
    assert recorder.interventions.total() == recorder.failed_runs > 20
    assert recorder.missed > 15
    assert recorder.end_to_end.low == pytest.approx(2.0)
    assert min(v for v in recorder.end_to_end.values if v > 2.01) == pytest.approx(4.0)


def test_without_failures_nothing_gets_stuck():
    assert cron(days=40, stages={"second": {"failure_rate": 0.5}}, failures=False).failed_runs == 0


@pytest.mark.parametrize(
    ("stuck", "needs", "acts"),
    [(10, 2, 12), (21, 2, 33), (3, 1, 9), (23, 1, 33), (10, 20, 40), (8, 14, 22)],
)
def test_a_person_notices_in_waking_hours(stuck, needs, acts):
    person = Person(People(notice_hours=needs, awake=(8, 22)), Chance(1))
    assert person.acts_at(1, 1, stuck * HOUR) == pytest.approx(acts * HOUR)


def test_calls_share_a_service_evenly():
    scenario = chain()
    clock = Clock(scenario.start)
    service = AgentService(clock, capacity=2)
    ended: dict[str, float] = {}

    def call(name: str, seconds: float, begin: float):
        yield clock.env.timeout(begin)
        yield service.call(seconds)
        ended[name] = clock.seconds

    for name, seconds, begin in (("a", 30, 0), ("b", 30, 0), ("c", 30, 0), ("d", 10, 100)):
        clock.env.process(call(name, seconds, begin))
    clock.run_for(1000)
    assert ended == pytest.approx({"a": 45, "b": 45, "c": 45, "d": 110})
    assert service.most == 3


def test_dropped_calls_make_room():
    clock = Clock(chain().start)
    service = AgentService(clock, capacity=1)
    kept, dropped = service.call(10), service.call(10)
    ended: list[float] = []
    kept.callbacks.append(lambda _: ended.append(clock.seconds))
    clock.after(10, service.drop, [dropped])
    clock.run_for(1000)
    assert ended == [15]


TIMERS: dict[str, Any] = {
    "name": "timers",
    "title": "two timers",
    "service": {"capacity": 6},
    "timers": {
        "article": {
            "every_minutes": 120,
            "phases": [
                {
                    "name": "critique",
                    "timeout_minutes": 10,
                    "calls": {"parallel": 6, "rounds": 3, "seconds": 150},
                }
            ],
        },
        "other": {
            "every_minutes": 120,
            "phases": [{"name": "improve", "calls": {"parallel": 6, "rounds": 2, "seconds": 150}}],
        },
    },
    "models": [{"name": "blind", "kind": "blind_timers", "title": "blind"}],
}


def blind(changes: dict[str, float], *, without: str = "") -> Recorder:
    timers = {name: timer for name, timer in TIMERS["timers"].items() if name != without}
    model = {**TIMERS["models"][0], "changes": changes}
    scenario = Scenario.model_validate({**TIMERS, "timers": timers, "models": [model]})
    return simulate_once(scenario, scenario.models[0], days=1, seed=1)


def test_contention_pushes_a_cycle_past_its_window():
    alone = blind({}, without="other")
    assert (alone.timeouts, alone.done) == (0, 12)
    assert alone.end_to_end.mean == pytest.approx(450 / HOUR)
    together = blind({})
    assert (together.timeouts, together.done) == (12, 0)
    assert together.wasted_seconds == 12 * 600
    assert together.extra["dispatches"] == 12


@pytest.mark.parametrize("fix", [{"timeout_minutes": 20}, {"rounds": 1}])
def test_a_five_minute_fix_can_remove_the_symptom(fix):
    assert blind(fix).timeouts == 0


def test_calls_are_counted_by_two_hour_windows():
    assert blind({}, without="other").extra["calls_in_window"] == 18


def test_cron_times_begin_with_the_start_itself():
    start = chain().start
    assert list(cron_times("0 */8 * * *", start, 1)) == [0, 8 * HOUR, 16 * HOUR]


def test_a_level_is_its_integral():
    level = Level(48)
    level.change(2, 1.5 * HOUR)
    level.change(-1, 3 * HOUR)
    level.change(-1, 4 * HOUR)
    assert level.mean(DAY) == pytest.approx((2 * 1.5 + 1) / 24)
    assert level.hourly(DAY)[:5] == pytest.approx([0, 1, 2, 1, 0])


def test_a_sample_keeps_a_bounded_choice_of_its_values():
    sample = Sample()
    for value in range(5 * KEPT):
        sample.add(float(value))
    assert (sample.count, sample.low, sample.high) == (5 * KEPT, 0, 5 * KEPT - 1)
    assert len(sample.values) == KEPT
    assert sample.median == pytest.approx(2.5 * KEPT, rel=0.03)
    assert sample.p95 == pytest.approx(4.75 * KEPT, rel=0.03)

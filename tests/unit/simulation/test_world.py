"""The ledger of a simulation does what the ledger does: same order, same decisions, nothing of its own."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.core import dispatch, lifecycle
from airflow_relay.core.breaker import BreakerSettings
from airflow_relay.core.item import Change, apply
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import EventKind, ItemState
from airflow_relay.simulation.ready_queue import ReadyQueue
from airflow_relay.simulation.scenario_file import load
from airflow_relay.simulation.world import KnownPipeline, World, changed

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
PIPELINE = KnownPipeline(
    "p", [Stage("a", to="b", schedule="@daily", keys=("shared",)), Stage("b", limit=2)], limits={"shared": 3}
)


def world(**limits: int) -> World:
    return World(
        [PIPELINE],
        conditions=Conditions(limits=limits),
        breaker_settings=BreakerSettings(),
        on_slot=lambda *_: None,
    )


def test_a_pipeline_that_remembers_gives_the_answers_of_the_declaration():
    for name, spec in load("newsroom").pipelines.items():
        plain = spec.pipeline(name)
        known = KnownPipeline.from_json(plain.to_json())
        for stage in plain.stages:
            assert known.stage(stage.name) == stage
            assert known.rank(stage.name) == plain.rank(stage.name)
            assert known.keys(stage.name) == plain.keys(stage.name)
            assert known.dag_id(stage.name) == plain.dag_id(stage.name)
        assert (known.entry, known.declared_limits()) == (plain.entry, plain.declared_limits())


def test_the_fast_change_is_the_change_of_core():
    item, _ = lifecycle.registered(pipeline=PIPELINE, key="k", priority=0, now=NOW)
    change = Change(
        kind=EventKind.GRANTED,
        at=NOW + timedelta(hours=1),
        text="",
        set={"state": ItemState.GRANTED, "epoch": 4},
    )
    assert changed(item, last_activity_at=change.at, **change.set) == apply(item, change)
    assert changed(item, id=5) == replace(item, id=5)
    assert item.state is ItemState.READY


@pytest.mark.parametrize("seed", range(8))
def test_the_queue_gives_the_first_items_in_the_order_of_the_rules(seed):
    rng, queue, items = random.Random(seed), ReadyQueue(), []
    for number in range(200):
        item, _ = lifecycle.registered(
            pipeline=PIPELINE,
            key=str(number),
            priority=rng.randrange(3),
            now=NOW + timedelta(minutes=rng.randrange(600)),
        )
        item = replace(item, id=number)
        items.append(item)
        queue.add(item)
    for item in rng.sample(items, 60):
        queue.remove(item.id)
        items.remove(item)
    now = NOW + timedelta(hours=11)
    (group,) = queue.groups()
    found = list(queue.first(group, 50, now))
    everything = sorted(queue.first(group, 1000, now), key=lambda c: dispatch.order_key(c, now))
    assert len(everything) == len(items) == group.count == len(queue)
    assert found == everything[:50]
    assert group.oldest == min(i.ready_since for i in items)


@pytest.mark.parametrize("seed", range(8))
def test_a_decision_with_what_is_wanted_is_the_decision_with_everything(seed):
    rng, made = random.Random(seed), world()
    for number in range(40):
        made.register(
            PIPELINE,
            number=number,
            priority=rng.randrange(2),
            now=NOW - timedelta(minutes=rng.randrange(900)),
        )
    groups = made.queue.groups()
    everything = [c for g in groups for c in made.queue.first(g, 1000, NOW)]
    expected = dispatch.dispatch(made.snapshot(NOW, groups).with_candidates(everything), NOW)
    granted, _ = made.dispatch(NOW)
    assert [r.item_id for r in granted] == [g.item_id for g in expected.grants]
    assert made.usage["shared"] == 3


def test_slots_are_taken_by_a_grant_and_told_for_limited_keys_alone():
    told: list[tuple[str, int]] = []
    made = World(
        [PIPELINE],
        conditions=Conditions(),
        breaker_settings=BreakerSettings(),
        on_slot=lambda key, by: told.append((key, by)),
    )
    made.register(PIPELINE, number=1, priority=0, now=NOW)
    made.dispatch(NOW)
    assert made.usage == {"p.a": 1, "shared": 1, "airflow.runs": 1}
    assert told == [("shared", 1), ("airflow.runs", 1)]


def test_what_waits_is_told_by_the_key_that_it_waits_for():
    made = world()
    for number in range(5):
        made.register(PIPELINE, number=number, priority=0, now=NOW)
    made.dispatch(NOW)
    assert made.waiting_for(NOW) == {"shared": 2}


def test_a_limit_of_the_variable_goes_before_the_declared_one():
    made = world(shared=1)
    for number in range(5):
        made.register(PIPELINE, number=number, priority=0, now=NOW)
    assert len(made.dispatch(NOW)[0]) == 1


def test_a_pipeline_is_refused_as_in_production():
    with pytest.raises(ValueError, match="declared 2 times"):
        KnownPipeline.from_json(
            Pipeline("p", [Stage("a", schedule="@daily")]).to_json()
            | {"stages": Pipeline("p", [Stage("a", schedule="@daily")]).to_json()["stages"] * 2}
        )

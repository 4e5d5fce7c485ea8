"""Dispatch through the ledger: what wakes it, what an intake waits for, what it loads. Both databases."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import insert, update

from airflow_relay.core.dispatch import dispatch
from airflow_relay.core.item import Item
from airflow_relay.core.limits import Hold
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, PriorityClass, RunResult
from airflow_relay.hooks import conditions as ring
from airflow_relay.ledger import dispatching, governing, items, registering, runs, schema
from airflow_relay.ledger.store import Ledger
from support.pipelines import START, Driver, line
from support.variables import Airflow, keys_of, texts, tick, waiting

VIENNA = ZoneInfo("Europe/Vienna")


def test_work_wakes_when_a_hold_ends(drive: Driver, airflow: Airflow) -> None:
    hold = Hold(scope="P2", reason="the editor talks to the agents", until=START + timedelta(minutes=4))
    with drive.ledger.write() as tx:
        governing.set_hold(tx, hold, by="a test", now=START)
    waiting(drive, "a", "b")
    assert keys_of(drive, tick(drive)) == ["a", "b"]


def test_work_wakes_when_a_hold_in_the_variable_ends(drive: Driver, airflow: Airflow) -> None:
    until = (START + timedelta(minutes=4)).isoformat()
    airflow.set("relay_hold", {"line": {"reason": "vacation", "until": until}})
    waiting(drive, "a")
    assert keys_of(drive, tick(drive)) == ["a"]


def used_tokens(drive: Driver, key: str, tokens: int, at: datetime) -> None:
    """A finished agent job of the item."""
    with drive.ledger.write() as tx:
        row = {
            "item_id": items.find(tx, key).id,
            "stage": "first",
            "visit": 1,
            "task_id": "ask",
            "map_index": -1,
            "generation": 1,
            "fingerprint": "f",
            "key": key,
            "run": 1,
            "attempt": "1",
            "protocol": "responses",
            "conn_id": "relay_agent",
            "phase": "succeeded",
            "input_tokens": tokens,
            "output_tokens": 1,
            "intended_at": at,
            "finished_at": at,
        }
        tx.conn.execute(insert(schema.jobs).values(**row))


def test_work_wakes_when_the_budget_starts_again_at_midnight_of_the_pipelines_timezone(
    ledger: Ledger, airflow: Airflow
) -> None:
    pipeline = Pipeline("line", [Stage("first", schedule="0 7 * * *")], timezone="Europe/Vienna")
    drive = Driver(ledger, pipeline)
    drive.now = datetime(2026, 3, 2, 23, 50, tzinfo=VIENNA).astimezone(timezone.utc)
    airflow.set("relay_limits", {"budget.line": 1000})
    drive.conditions = ring.read_conditions(ledger, drive.now)
    (first,) = drive.intake("a")
    used_tokens(drive, "a", 999, drive.now)
    drive.serve(first)
    waiting(drive, "b")
    assert tick(drive) == [], "23:55: the budget is still used up"
    assert keys_of(drive, tick(drive)) == ["b"], "midnight in Vienna; in UTC it is still yesterday"
    assert drive.now.hour == 23


def test_a_used_up_budget_alerts_once_a_day_and_names_the_end(ledger: Ledger, airflow: Airflow) -> None:
    drive = Driver(ledger, line())
    airflow.set("relay_limits", {"budget.line": 1000})
    drive.intake("a")
    used_tokens(drive, "a", 5000, drive.now)
    waiting(drive, "b")
    for _ in range(3):
        tick(drive)
    (text,) = texts(ledger, "budget:")
    assert "5,001 tokens" in text
    assert "until 2026-03-03 00:00 UTC" in text
    used_tokens(drive, "b", 5000, drive.later(days=1))
    tick(drive)
    assert len(texts(ledger, "budget:")) == 2


def test_work_wakes_when_a_limit_is_raised_on_the_variables_page(drive: Driver, airflow: Airflow) -> None:
    airflow.set("relay_limits", {"line.first": 0})
    waiting(drive, "a", "b", "c")
    airflow.set("relay_limits", {"line.first": 2})
    assert keys_of(drive, tick(drive)) == ["a", "b"]


def test_a_limit_that_is_lowered_on_the_variables_page_drains_and_stops_nothing(
    drive: Driver, airflow: Airflow
) -> None:
    airflow.set("relay_limits", {"line.first": 3})
    drive.conditions = ring.read_conditions(drive.ledger, drive.now)
    granted = drive.intake("a", "b", "c", "d")
    airflow.set("relay_limits", {"line.first": 1, "line.second": 0})
    assert tick(drive) == []
    assert [drive.run(r).state.value for r in granted] == ["open"] * 3
    assert drive.serve(granted[0]) == []
    assert drive.serve(granted[1]) == []
    assert keys_of(drive, drive.serve(granted[2])) == ["d"]


def test_work_wakes_when_its_dag_is_unpaused(drive: Driver, airflow: Airflow) -> None:
    airflow.paused.add("line__first")
    waiting(drive, "a")
    airflow.paused.clear()
    assert keys_of(drive, tick(drive)) == ["a"]


def test_idle_work_wakes_at_once_when_the_last_urgent_item_ends(drive: Driver, airflow: Airflow) -> None:
    idle = Driver(
        drive.ledger, Pipeline("idle", [Stage("first", schedule="0 7 * * *")], klass=PriorityClass.P3)
    )
    (run,) = drive.intake("urgent")
    waiting(idle, "stats")
    (run,) = drive.serve(run)
    (run,) = drive.serve(run)
    assert tick(idle) == []
    assert keys_of(idle, drive.serve(run)) == ["stats"]


def test_idle_work_does_not_wait_for_urgent_work_that_cannot_run(drive: Driver, airflow: Airflow) -> None:
    idle = Driver(
        drive.ledger, Pipeline("idle", [Stage("first", schedule="0 7 * * *")], klass=PriorityClass.P3)
    )
    airflow.set("relay_hold", {"line": "vacation"})
    waiting(drive, "urgent")
    idle.conditions = ring.read_conditions(idle.ledger, idle.now)
    assert keys_of(idle, idle.intake("stats")) == ["stats"]


# The intake


def cycle(drive: Driver) -> str | None:
    drive.later(hours=2)
    return drive.ledger.intake_must_wait(drive.pipeline, drive.now)


def test_an_intake_skips_while_the_last_ones_items_are_in_the_entry_stage_and_is_counted(
    drive: Driver,
) -> None:
    (run,) = drive.intake("a")
    assert cycle(drive) == "1 item of an earlier intake is still in first"
    drive.serve(run)
    assert cycle(drive) is None
    with drive.ledger.read() as tx:
        history = registering.intake_history(tx, "line")
    assert [row["skipped_because"] for row in history] == [
        "1 item of an earlier intake is still in first",
        None,
    ]


@pytest.mark.parametrize("error", ["timeout", "content_policy"])
def test_failed_and_dead_items_are_no_backpressure(ledger: Ledger, error: str) -> None:
    pipeline = Pipeline("line", [Stage("first", schedule="0 7 * * *")], max_in_progress=1)
    drive = Driver(ledger, pipeline)
    (run,) = drive.intake("a")
    assert cycle(drive) is not None
    drive.end(run, result=RunResult.FAILED, error=error)
    assert drive.item("a").state in (ItemState.FAILED, ItemState.DEAD)
    assert cycle(drive) is None


def test_an_intake_skips_while_work_in_progress_is_at_its_limit(ledger: Ledger) -> None:
    pipeline = Pipeline(
        "line", [Stage("first", to="second", schedule="0 7 * * *"), Stage("second")], max_in_progress=2
    )
    drive = Driver(ledger, pipeline)
    for run in drive.intake("a", "b"):
        drive.serve(run)
    assert cycle(drive) == "2 items are in progress, the limit is 2"


def test_climbing_skips_raise_one_alert(drive: Driver) -> None:
    drive.intake("stuck")
    for n in range(1, 13):
        assert cycle(drive) is not None
        assert len(texts(drive.ledger, "backpressure:")) == (0 if n < 3 else 1), n
    (text,) = texts(drive.ledger, "backpressure:")
    assert "Last reason: 1 item of an earlier intake is still in first" in text


def test_skips_that_do_not_climb_raise_no_alert(drive: Driver) -> None:
    drive.later(hours=8)
    for n in range(12):
        (run,) = drive.intake(f"item-{n}")
        if n % 3 == 0:
            assert cycle(drive) is not None
        drive.serve(run)
    assert texts(drive.ledger, "backpressure:") == []


def test_two_pipelines_keep_the_limit_of_a_key_that_they_share(ledger: Ledger) -> None:
    def publication(name: str) -> Driver:
        return Driver(
            ledger,
            Pipeline(name, [Stage("critique", schedule="0 7 * * *", keys=("desk",))], limits={"desk": 1}),
        )

    north, south = publication("north"), publication("south")
    (run,) = north.intake("a")
    assert south.intake("b") == []
    assert keys_of(south, list(north.end(run).grants)) == ["b"]
    with ledger.read() as tx:
        assert runs.usage(tx)["desk"] == 1


def test_conditions_without_anything_set_grant_at_once(drive: Driver) -> None:
    drive.conditions = Conditions()
    assert len(drive.intake(*[f"i{n}" for n in range(60)])) == 60


# What is loaded for a decision


@pytest.mark.parametrize("seed", range(12))
def test_loading_few_items_gives_the_grants_that_loading_all_would_give(ledger: Ledger, seed: int) -> None:
    rng = random.Random(seed)
    now = populate(ledger, rng)
    limits = {"desk": rng.randrange(3), "airflow.runs": rng.choice([1, 2, 5, 60])}
    conditions = Conditions(limits=limits, paused_dags=frozenset(rng.sample(["p0__first", "p1__third"], 1)))
    with ledger.read() as tx:
        everything = dispatching.load_snapshot(tx, conditions, now)
        by_count = {(g.pipeline, g.stage, g.klass, g.rank, g.keys): g.count for g in everything.groups}
        expected = [g.item_id for g in dispatch(everything, now).grants]
        counted = Counter(
            (i.pipeline, i.stage, i.klass, i.rank, i.keys) for i in items.listing(tx) if due(i, now)
        )
    assert by_count == counted
    assert [run.item_id for run in ledger.dispatch(conditions, now)] == expected


def due(item: Item, now: datetime) -> bool:
    return item.state is ItemState.READY and (item.not_before is None or item.not_before <= now)


def populate(ledger: Ledger, rng: random.Random) -> datetime:
    """60 ready items all over three pipelines, some old, some preferred, some of an earlier declaration."""
    now = START + timedelta(hours=12)
    for number in range(3):
        drive = Driver(ledger, line(f"line{number}", **{rng.choice(["first", "second"]): 2}))
        drive.conditions = Conditions(holds={f"line{number}": "not yet"})
        drive.intake(*[f"{number}-{n}" for n in range(20)])
    with ledger.write() as tx:
        for item in items.listing(tx):
            stage = rng.choice(["first", "second", "third"])
            pipeline = line(item.pipeline)
            values = {
                "stage": stage,
                "rank": pipeline.rank(stage) + rng.choice([0, 0, 0, 1]),
                "dag_id": pipeline.dag_id(stage),
                "keys": [*pipeline.keys(stage), *rng.choice([[], ["desk"]])],
                "priority": rng.randrange(2),
                "klass": rng.choice([PriorityClass.P2, PriorityClass.P2, PriorityClass.P3]),
                "ready_since": now - timedelta(minutes=rng.randrange(600)),
                "not_before": rng.choice([None, None, now + timedelta(hours=1), now]),
            }
            tx.conn.execute(update(schema.items).where(schema.items.c.id == item.id).values(**values))
    return now

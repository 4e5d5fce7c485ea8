"""A run that a person starts in Airflow for one item: it is bound to the item, or the item waits."""

from __future__ import annotations

import pytest

from airflow_relay.core.item import Item, Run
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.ledger.errors import ItemWaitsError
from support.pipelines import SHAPE, Driver, line


@pytest.fixture
def narrow(ledger) -> Driver:
    """One item at a time in the first stage."""
    return Driver(ledger, line(first=1))


def by_hand(drive: Driver, key: str, stage: str = "first") -> tuple[Item, Run] | None:
    return drive.ledger.adopt(
        pipeline=drive.pipeline,
        key=key,
        stage=stage,
        dag_id=drive.pipeline.dag_id(stage),
        run_id=f"manual {key}",
        clear_number=0,
        shape=SHAPE,
        conditions=drive.conditions,
        now=drive.now,
    )


def test_a_run_started_by_hand_is_the_items_own_run(narrow):
    narrow.ledger.register_one(narrow.pipeline, "a", None, narrow.now)
    item, run = by_hand(narrow, "a")
    assert (item.state, item.epoch, run.run_id) == (ItemState.RUNNING, 1, "manual a")
    assert narrow.usage()["line.first"] == 1
    narrow.end(run)
    assert narrow.run(run).result is RunResult.SUCCESS
    assert narrow.item("a").stage == "second"


def test_an_item_that_waits_for_the_stage_anyway_is_served_once(narrow):
    """The run started by hand finds no slot. Were it bound later, the stage would be done again."""
    (holder,) = narrow.intake("holder")
    narrow.ledger.register_one(narrow.pipeline, "a", None, narrow.now)
    with pytest.raises(ItemWaitsError, match="gets a run of its own"):
        by_hand(narrow, "a")
    granted = [run for run in narrow.serve(holder) if run.item_id == narrow.item("a").id]
    assert [run.stage for run in granted] == ["first"]
    narrow.serve(granted[0])
    assert narrow.item("a").stage == "second"


def test_an_item_that_does_not_wait_for_the_stage_is_bound_when_a_slot_is_free(narrow):
    (run,) = narrow.intake("a")
    narrow.ledger.confirm([run.id], narrow.now)
    narrow.guard(run)
    narrow.end(run, result=RunResult.FAILED, error="timeout")
    narrow.intake("holder")
    assert by_hand(narrow, "a") is None
    narrow.conditions = Conditions(limits={"line.first": 2})
    item, _ = by_hand(narrow, "a")
    assert item.state is ItemState.RUNNING

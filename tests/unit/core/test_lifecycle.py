"""How an item moves from stage to stage, and where it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.core import lifecycle
from airflow_relay.core.completion import Completion
from airflow_relay.core.item import Item, Run, apply
from airflow_relay.core.pipeline import DISCARD, END, PERSON, Pipeline, Stage
from airflow_relay.core.states import TERMINAL, EventKind, ItemState, RunResult, RunState

NOW = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
PIPELINE = Pipeline(
    "articles",
    [
        Stage(
            "draft",
            status="drafted",
            to="review",
            schedule="0 7 * * *",
            max_visits=2,
            after_max_visits="ship",
        ),
        Stage(
            "review",
            status="reviewed",
            to={"ok": "ship", "again": "draft", "bad": DISCARD, "ask": PERSON},
        ),
        Stage("ship", status="shipped", to=END),
    ],
)


def new_item() -> Item:
    return lifecycle.registered(pipeline=PIPELINE, key="a", priority=3, now=NOW)[0]


def run_of(item: Item) -> Run:
    return Run(
        id=7,
        item_id=item.id,
        pipeline=item.pipeline,
        stage=item.stage,
        visit=item.visit,
        epoch=item.epoch,
        dag_id=item.dag_id,
        run_id="relay:articles:x:a:1",
        ledger_id="one",
        state=RunState.OPEN,
        klass=item.klass,
        granted_at=NOW,
    )


def complete(item: Item, outcome: str | None = None, result: RunResult = RunResult.SUCCESS) -> Item:
    change = lifecycle.completed(
        item, pipeline=PIPELINE, run=run_of(item), completion=Completion(result, outcome), now=NOW
    )
    assert change.run == 7
    return apply(item, change)


def test_a_registered_item_is_ready_for_the_entry_stage():
    item, change = lifecycle.registered(pipeline=PIPELINE, key="a", priority=3, now=NOW)
    assert (item.state, item.stage, item.status, item.visits) == (ItemState.READY, "draft", "", {"draft": 1})
    assert item.dag_id == "articles__draft"
    assert item.keys == ("articles.draft",)
    assert change.set["key"] == "a"


def test_a_completed_stage_gives_its_status_and_makes_the_item_ready_for_the_next():
    item = complete(new_item())
    assert (item.state, item.stage, item.status) == (ItemState.READY, "review", "drafted")
    assert item.visits == {"draft": 1, "review": 1}
    assert item.ready_since == NOW
    assert item.rank == PIPELINE.rank("review")


def test_completion_forgets_the_errors_on_the_way():
    item = replace(new_item(), error_class="timeout", error_reason="slow", attempts=2)
    after = complete(item)
    assert after.error_class is None
    assert after.error_reason is None
    assert after.attempts == 2, "the day's attempts count for the item, not for the stage"


@pytest.mark.parametrize(
    ("outcome", "state", "stage"),
    [
        ("ok", ItemState.READY, "ship"),
        ("again", ItemState.READY, "draft"),
        ("bad", ItemState.DISCARDED, "review"),
        ("ask", ItemState.DEAD, "review"),
    ],
)
def test_a_router_sends_the_item_where_its_outcome_says(outcome, state, stage):
    item = complete(complete(new_item()), outcome)
    assert (item.state, item.stage) == (state, stage)
    assert (item.finished_at is not None) == (state in TERMINAL)


def test_the_last_stage_finishes_the_item():
    item = complete(complete(complete(new_item()), "ok"))
    assert (item.state, item.status, item.finished_at) == (ItemState.DONE, "shipped", NOW)
    assert item.ready_since is None


def test_used_up_visits_divert_the_item_and_say_so():
    item = complete(complete(complete(complete(new_item()), "again")), "again")
    assert (item.state, item.stage) == (ItemState.READY, "ship")
    assert item.visits == {"draft": 2, "review": 2, "ship": 1}
    change = lifecycle.enter(
        replace(item, stage="review"), pipeline=PIPELINE, target="draft", now=NOW + timedelta(hours=1)
    )
    assert "draft has used its visits" in change.text


def test_two_bounded_stages_that_divert_to_each_other_end_at_a_person():
    pipeline = Pipeline(
        "p",
        [
            Stage("a", to={"b": "b", "x": END}, schedule="@daily", max_visits=1, after_max_visits="b"),
            Stage("b", to={"a": "a", "x": END}, max_visits=1, after_max_visits="a"),
        ],
    )
    item = replace(new_item(), pipeline="p", stage="b", visits={"a": 1, "b": 1})
    change = lifecycle.enter(item, pipeline=pipeline, target="a", now=NOW)
    assert change.set["state"] is ItemState.DEAD
    assert change.kind is EventKind.DEAD_LETTERED
    assert (change.set["stage"], change.set["visits"]) == ("a", {"a": 2, "b": 1})
    assert change.set["error_reason"] == "a has used its visits"


@pytest.mark.parametrize("outcome", [None, "nonsense", ""])
def test_an_outcome_that_the_router_does_not_know_is_an_error_that_names_the_known_ones(outcome):
    with pytest.raises(lifecycle.UnknownOutcomeError, match="it knows ok, again, bad, ask"):
        lifecycle.route(PIPELINE, "review", outcome)


def test_a_default_route_serves_unknown_outcomes_and_stages_marked_success():
    pipeline = Pipeline(
        "p", [Stage("a", to={"ok": "b", "default": PERSON}, schedule="@daily"), Stage("b", to=END)]
    )
    assert lifecycle.route(pipeline, "a", "ok") == "b"
    assert lifecycle.route(pipeline, "a", "nonsense") is PERSON
    assert lifecycle.route(pipeline, "a", None) is PERSON


def test_a_skipped_router_goes_by_its_skipped_outcome():
    pipeline = Pipeline(
        "p", [Stage("a", to={"ok": "b", "skipped": DISCARD}, schedule="@daily"), Stage("b", to=END)]
    )
    assert lifecycle.route(pipeline, "a", None, RunResult.SKIPPED) is DISCARD
    with pytest.raises(lifecycle.UnknownOutcomeError):
        lifecycle.route(pipeline, "a", None, RunResult.SUCCESS)


def test_a_skipped_plain_stage_goes_on_and_says_that_it_was_skipped():
    item = new_item()
    change = lifecycle.completed(
        item, pipeline=PIPELINE, run=run_of(item), completion=Completion(RunResult.SKIPPED), now=NOW
    )
    assert change.set["stage"] == "review"
    assert "draft completed (skipped)" in change.text


@pytest.mark.parametrize(
    ("retryable", "state", "kind"),
    [(True, ItemState.FAILED, EventKind.FAILED), (False, ItemState.DEAD, EventKind.DEAD_LETTERED)],
)
def test_a_failure_waits_for_the_sweep_or_for_a_person(retryable, state, kind):
    item = new_item()
    completion = Completion(RunResult.FAILED, None, "timeout", "no answer in 60 s")
    change = lifecycle.failed(run=run_of(item), completion=completion, retryable=retryable, now=NOW)
    after = apply(item, change)
    assert (after.state, change.kind) == (state, kind)
    assert (after.error_class, after.error_reason) == ("timeout", "no answer in 60 s")
    assert "draft failed (timeout): no answer in 60 s" in change.text
    assert (after.finished_at is not None) == (state is ItemState.DEAD)


def test_ready_again_is_the_same_stage_and_visit():
    failed = replace(complete(new_item()), state=ItemState.FAILED, not_before=NOW, ready_since=None)
    change = lifecycle.ready_again(
        failed, pipeline=PIPELINE, kind=EventKind.READY, text="again", now=NOW + timedelta(hours=2)
    )
    after = apply(failed, change)
    assert (after.state, after.stage, after.visits) == (ItemState.READY, "review", failed.visits)
    assert after.ready_since == NOW + timedelta(hours=2)
    assert after.not_before is None


@given(st.lists(st.sampled_from(["ok", "again", "bad", "ask"]), min_size=12, max_size=12))
def test_every_item_ends_whatever_its_outcomes_are(outcomes):
    item = new_item()
    for outcome in outcomes:
        item = complete(item, outcome if item.stage == "review" else None)
        assert all(item.visits.get(s.name, 0) <= (s.max_visits or 99) for s in PIPELINE.stages)
        if item.state in TERMINAL:
            return
    raise AssertionError(f"still at {item.stage} after {len(outcomes)} stages")

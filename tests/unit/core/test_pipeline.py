"""What a declaration says once it is accepted; what is refused stands in tests/dags/must_fail."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.core.pipeline import DISCARD, END, PERSON, Pipeline, PipelineError, Stage, Window
from airflow_relay.core.states import PriorityClass

FULL = Pipeline(
    "articles",
    [
        Stage(
            "draft", status="drafted", to="review", schedule="0 7 * * *", limit=2, timeout=timedelta(hours=1)
        ),
        Stage(
            "review",
            status="reviewed",
            to={"ok": "ship", "again": "draft", "bad": DISCARD, "default": PERSON},
            keys=("agents",),
            max_visits=3,
            after_max_visits="ship",
            fallback="0 8 * * *",
            outcome_field="data.verdict",
            window=Window(start="06:00", end="22:00"),
        ),
        Stage("ship", to=END, expected=timedelta(minutes=5), fallback=("0 9 * * *", "0 21 * * *")),
    ],
    timezone="Europe/Berlin",
    klass=PriorityClass.P1,
    limits={"agents": 4},
    max_in_progress=20,
    description="From a question to a page.",
)


def test_the_entry_is_the_stage_with_the_schedule():
    assert FULL.entry.name == "draft"


def test_a_plain_route_is_a_table_with_the_default_outcome():
    assert FULL.stage("draft").routes == {"default": "review"}
    assert not FULL.stage("draft").is_router
    assert FULL.stage("review").is_router


def test_successors_are_the_stages_of_the_routes_and_of_the_diversion_each_once():
    assert FULL.stage("review").successors == ("ship", "draft")
    assert FULL.stage("ship").successors == ()


def test_the_stage_nearest_to_the_end_ranks_first():
    ranks = {s.name: FULL.rank(s.name) for s in FULL.stages}
    assert ranks["ship"] > ranks["review"] > ranks["draft"]


def test_a_set_priority_is_the_rank():
    pipeline = Pipeline("p", [Stage("a", to="b", schedule="@daily", priority=500), Stage("b")])
    assert pipeline.rank("a") == 500
    assert pipeline.rank("b") < 500


def test_a_run_holds_its_stage_and_the_extra_keys():
    assert FULL.keys("review") == ("articles.review", "agents")
    assert FULL.declared_limits() == {"articles.draft": 2, "agents": 4}


def test_an_unknown_stage_is_an_error_that_lists_the_known_ones():
    with pytest.raises(PipelineError, match=r"has no stage 'edit'\. Its stages are: draft, review, ship"):
        FULL.stage("edit")


def test_a_single_fallback_schedule_is_a_list_of_one():
    assert FULL.stage("review").fallback_schedules == ("0 8 * * *",)
    assert FULL.stage("ship").fallback_schedules == ("0 9 * * *", "0 21 * * *")
    assert FULL.stage("draft").fallback_schedules == ()


def test_a_declaration_survives_the_ledger():
    again = Pipeline.from_json(FULL.to_json())
    assert again.to_json() == FULL.to_json()
    assert again.stage("draft") == FULL.stage("draft")
    assert again.stage("review").routes == FULL.stage("review").routes
    assert again.stage("review").window == FULL.stage("review").window


def test_every_problem_is_told_at_once():
    with pytest.raises(PipelineError) as refused:
        Pipeline("p", [Stage("a", to="b", schedule="noon", limit=0), Stage("c", to="a")], timezone="Mars")
    text = str(refused.value)
    for part in (
        "'Mars' is unknown",
        "'noon' is no cron",
        "limit=0",
        "leads to 'b'",
        "'c' cannot be reached",
    ):
        assert part in text


def test_a_loop_with_a_bound_on_one_of_its_stages_is_accepted():
    Pipeline(
        "p", [Stage("a", to="b", schedule="@daily", max_visits=2), Stage("b", to={"ok": END, "again": "a"})]
    )


def test_a_second_loop_that_avoids_the_bound_is_refused():
    with pytest.raises(PipelineError, match="loop without a bound"):
        Pipeline(
            "p",
            [
                Stage("a", to="b", schedule="@daily", max_visits=2),
                Stage("b", to={"ok": "c", "again": "a"}),
                Stage("c", to={"ok": END, "back": "b"}),
            ],
        )


@st.composite
def graphs(draw):
    """Any routes between up to six stages, some with a bound."""
    names = [f"s{i}" for i in range(draw(st.integers(min_value=1, max_value=6)))]
    targets = st.one_of(st.sampled_from(names), st.sampled_from([END, DISCARD, PERSON]))
    return [
        Stage(
            name,
            to=draw(st.dictionaries(st.sampled_from(["ok", "again", "bad"]), targets, min_size=1)),
            schedule="@daily" if name == "s0" else None,
            max_visits=draw(st.sampled_from([None, None, 1, 2])),
        )
        for name in names
    ]


@given(graphs(), st.lists(st.integers(min_value=0, max_value=2), min_size=60, max_size=60))
def test_no_accepted_graph_lets_an_item_run_for_ever_and_each_stage_can_reach_an_end(stages, choices):
    try:
        pipeline = Pipeline("p", stages)
    except PipelineError as refused:
        assert "Pipeline 'p':" in str(refused)  # noqa: PT017 - both answers are right; this one names the pipeline
        return
    # Follow any choices: without a bounded stage in between, no stage comes up twice.
    at, since_bound = "s0", []
    for choice in choices:
        if pipeline.stage(at).max_visits is not None:
            since_bound = []
        assert at not in since_bound
        since_bound.append(at)
        routes = list(pipeline.stage(at).routes.values())
        target = routes[choice % len(routes)]
        if target in (END, DISCARD, PERSON):
            return
        at = target

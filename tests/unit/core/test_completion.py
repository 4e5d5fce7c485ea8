"""How a stage's run ended, read from the states of its tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.core.completion import (
    ENDED_STATES,
    FAILED_STATES,
    HAND_OFF_TASK_ID,
    SKIPPED_STATES,
    Completion,
    StageShape,
    completion_of,
    has_ended,
    outcome_of,
)
from airflow_relay.core.states import RunResult

SHAPE = StageShape(work=("prepare", "ask", "tidy"), ends=("ask", "tidy"), result_task_id="ask")
ALIVE = ("queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "scheduled", "restarting")


def states(**given_states: str) -> dict[str, str]:
    return {"prepare": "success", "ask": "success", "tidy": "success", HAND_OFF_TASK_ID: "running"} | (
        given_states
    )


def test_all_work_done_is_a_success():
    assert completion_of(states(), SHAPE) == Completion(RunResult.SUCCESS)


@pytest.mark.parametrize("state", sorted(FAILED_STATES))
def test_one_failed_task_fails_the_stage_and_is_named(state):
    found = completion_of(states(ask=state), SHAPE)
    assert found.result is RunResult.FAILED
    assert "failed tasks: ask" in (found.error_reason or "")


def test_a_clean_up_behind_a_failure_does_not_hide_it():
    assert completion_of(states(prepare="failed", tidy="success"), SHAPE).result is RunResult.FAILED


def test_a_failed_teardown_or_setup_is_no_failure_of_the_work():
    assert completion_of(states(drop_cluster="failed"), SHAPE).result is RunResult.SUCCESS


def test_the_hand_off_itself_is_no_work():
    assert completion_of(states(**{HAND_OFF_TASK_ID: "failed"}), SHAPE).result is RunResult.SUCCESS


@pytest.mark.parametrize("state", sorted(SKIPPED_STATES))
def test_all_ends_skipped_is_a_skip(state):
    assert completion_of(states(ask=state, tidy=state), SHAPE).result is RunResult.SKIPPED


def test_one_end_that_ran_is_a_success_whatever_was_skipped_before():
    assert completion_of(states(prepare="skipped", ask="skipped"), SHAPE).result is RunResult.SUCCESS


def test_a_failed_task_of_a_mapped_one_fails_the_stage():
    mapped = {"prepare": "success", "ask_0": "success", "ask_1": "failed", "tidy": "success"}
    found = completion_of(mapped, SHAPE)
    assert found.result is RunResult.FAILED
    assert "ask_1" in (found.error_reason or "")


def test_a_mapped_end_is_skipped_when_each_of_its_tasks_is():
    shape = StageShape(("ask",), ("ask",))
    assert completion_of({"ask_0": "skipped", "ask_1": "skipped"}, shape).result is RunResult.SKIPPED
    assert completion_of({"ask_0": "skipped", "ask_1": "success"}, shape).result is RunResult.SUCCESS


def test_a_task_whose_name_only_looks_like_a_mapped_one_is_another_task():
    shape = StageShape(("ask",), ("ask",))
    assert completion_of({"ask": "success", "ask_again": "failed"}, shape).result is RunResult.SUCCESS


def test_of_an_unguarded_run_every_task_but_the_hand_off_is_work():
    seen = {"one": "success", "two": "failed", HAND_OFF_TASK_ID: "success"}
    shape = StageShape.unknown(seen)
    assert set(shape.work) == {"one", "two"}
    assert completion_of(seen, shape).result is RunResult.FAILED


@given(st.dictionaries(st.sampled_from(["prepare", "ask", "tidy"]), st.sampled_from(sorted(ENDED_STATES))))
def test_a_failure_is_never_read_as_anything_else(found):
    failed = any(state in FAILED_STATES for state in found.values())
    assert (completion_of(found, SHAPE).result is RunResult.FAILED) == failed


@pytest.mark.parametrize("state", ALIVE)
def test_a_run_with_a_task_alive_has_not_ended(state):
    assert not has_ended(states(**{HAND_OFF_TASK_ID: "success"}, ask=state))


def test_a_run_has_ended_when_its_hand_off_has():
    assert not has_ended(states())
    assert has_ended(states(**{HAND_OFF_TASK_ID: "failed"}))
    assert not has_ended({}), "nothing is known of it"


@pytest.mark.parametrize(
    ("value", "field", "outcome"),
    [
        ("ok", "outcome", "ok"),
        ({"outcome": "ok"}, "outcome", "ok"),
        ({"data": {"verdict": "revise"}}, "data.verdict", "revise"),
        ({"data": "revise"}, "data.verdict", None),
        ({"data": {}}, "data.verdict", None),
        ({"outcome": 7}, "outcome", None),
        (None, "outcome", None),
        (["ok"], "outcome", None),
    ],
)
def test_the_outcome_is_the_text_itself_or_lies_in_the_mapping(value, field, outcome):
    assert outcome_of(value, field) == outcome


def test_the_shape_survives_the_ledger():
    assert StageShape.from_json(SHAPE.to_json()) == SHAPE


@pytest.mark.parametrize(
    ("said", "outcome"), [("o" * 201, "o" * 200), ("a\x00b", "ab"), ("a\ud800", "a?"), ("", ""), (7, None)]
)
def test_an_outcome_is_a_text_that_any_database_stores(said, outcome):
    assert outcome_of({"outcome": said}, "outcome") == outcome

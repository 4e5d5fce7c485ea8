"""What the doctor says, and the cure."""

from __future__ import annotations

import pytest

from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.states import PriorityClass
from airflow_relay.operations import doctor_checks as checks
from airflow_relay.operations.doctor_checks import DagFacts, Grade, Settings


def problems(findings):
    return [f for f in findings if f.grade is Grade.PROBLEM]


def test_all_dags_present_and_unpaused_is_well():
    (finding,) = checks.check_dags(["a", "b"], {"a": DagFacts(), "b": DagFacts()})
    assert finding.grade is Grade.OK


@pytest.mark.parametrize(
    ("facts", "said", "cure"),
    [
        ({}, "x is not in Airflow", "deploy the file"),
        ({"x": DagFacts(is_missing=True, is_paused=True)}, "x is not in Airflow", "deploy the file"),
        ({"x": DagFacts(is_paused=True)}, "x is paused", "airflow dags unpause x"),
        ({"x": DagFacts(has_import_errors=True)}, "x is with import errors", "list-import-errors"),
    ],
)
def test_each_trouble_of_a_dag_has_its_cure(facts, said, cure):
    (finding,) = checks.check_dags(["x"], facts)
    assert finding.grade is Grade.PROBLEM
    assert finding.text == said
    assert cure in finding.cure


def test_many_dags_in_trouble_are_one_line():
    (finding,) = checks.check_dags([f"d{n}" for n in range(50)], {})
    assert "and 45 more are not in Airflow" in finding.text


def test_a_step_takes_as_long_as_the_scheduler_needs_to_come_by():
    """The measured steps: 13 s with 300 parked runs and 103 s with 2,000 (stock), 2.5 s with 300 (0.1 s)."""
    assert checks.step_latency(300, per_loop=20, idle_sleep=1.0) == pytest.approx(13, rel=0.3)
    assert checks.step_latency(2000, per_loop=20, idle_sleep=1.0) == pytest.approx(103, rel=0.1)
    assert checks.step_latency(300, per_loop=20, idle_sleep=0.1) == pytest.approx(2.5, rel=0.1)


@pytest.mark.parametrize(("running", "grade"), [(0, Grade.OK), (60, Grade.OK), (300, Grade.PROBLEM)])
def test_too_many_running_runs_are_a_problem(running, grade):
    assert checks.check_latency(running, per_loop=20, idle_sleep=1.0).grade is grade


def test_no_triggerer_and_a_full_one_are_problems():
    assert checks.check_triggerer(0, triggers=3, capacity=1000).grade is Grade.PROBLEM
    assert checks.check_triggerer(1, triggers=801, capacity=1000).grade is Grade.PROBLEM
    assert checks.check_triggerer(2, triggers=801, capacity=1000).grade is Grade.OK


def test_what_waits_is_no_problem_by_itself():
    findings = checks.check_waiting({("line", "first"): "slot: line.first is full"}, 0)
    assert not problems(findings)
    assert "line.first: slot" in findings[0].text


def test_what_could_go_and_does_not_is_one():
    (finding,) = problems(checks.check_waiting({}, 4))
    assert "4 items" in finding.text
    assert "airflow relay dispatch" in finding.cure


def test_items_in_a_stage_that_is_no_more_are_named_with_the_command_that_moves_them():
    (finding,) = checks.check_stranded({("line", "old"): 3})
    assert finding.cure == "airflow relay move line old <stage>"


def test_the_recommended_settings_leave_nothing_to_advise():
    best = Settings(idle_sleep=0.1, per_loop=10, min_heartbeat=1, reparse=300, is_preloaded=True)
    assert [f.grade for f in checks.check_settings(best)] == [Grade.OK]


def test_stock_settings_are_advice_and_no_problem():
    stock = Settings(idle_sleep=1, per_loop=20, min_heartbeat=5, reparse=30, is_preloaded=False)
    findings = checks.check_settings(stock)
    assert [f.grade for f in findings] == [Grade.ADVICE] * 5
    assert all(f.cure for f in findings)


def test_idle_work_that_shares_a_limited_key_with_urgent_work_is_a_problem():
    """Each file may be right by itself, and the limit may be in the Variable alone."""
    stages = [Stage("a", schedule="@daily", keys=("agents",))]
    urgent, idle = Pipeline("news", stages), Pipeline("upkeep", stages, klass=PriorityClass.P3)
    assert checks.check_idle_keys([urgent, idle], {}) == []
    (finding,) = problems(checks.check_idle_keys([urgent, idle], {"agents": 4}))
    assert "'upkeep' (P3) shares the limited key 'agents' with 'news'" in finding.text
    assert finding.cure

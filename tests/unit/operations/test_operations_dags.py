"""The operations DAGs as they are declared, and that parsing them asks nobody anything."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from airflow_relay import Pipeline, Stage, fallback_dags, operations_dags
from airflow_relay.dags import fallback, operations
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.operators.admin import Action
from support.pipelines import line


@pytest.fixture(autouse=True)
def _no_input_or_output(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("parsing must not look at the ledger")

    monkeypatch.setattr(ledger_hook, "_ledger_for", refuse)


def with_fallback() -> Pipeline:
    return Pipeline(
        "old",
        [
            Stage("a", to="b", schedule="0 7 * * *"),
            Stage("b", to="c", fallback=["0 8 * * *", "30 20 * * *"]),
            Stage("c", fallback="0 12 * * *"),
        ],
        timezone="Europe/Berlin",
    )


def test_there_is_one_dag_for_each_duty():
    assert {dag.dag_id for dag in operations_dags()} == {
        "relay__dispatch",
        "relay__recovery",
        "relay__dead_letter",
        "relay__watchdog",
        "relay__admin",
    }


def test_the_sweep_reads_from_left_to_right():
    dag = next(d for d in operations_dags() if d.dag_id == "relay__recovery")
    order = ["load_rules", "scan", "reconcile", "decide", "refire", "escalate", "heartbeat"]
    assert [task.task_id for task in dag.topological_sort()] == order
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert dag.timetable._delta == timedelta(hours=2)
    assert set(dag.params) == {"dry_run", "exclude"}


def test_operations_dags_are_not_paused_and_fallback_dags_are():
    assert not any(dag.is_paused_upon_creation for dag in operations_dags())
    assert all(dag.is_paused_upon_creation for dag in fallback_dags(with_fallback()))


def test_only_stages_that_name_a_schedule_have_a_fallback_dag():
    dags = {dag.dag_id: dag for dag in fallback_dags(with_fallback())}
    assert set(dags) == {"relay__fallback__old__b", "relay__fallback__old__c"}
    assert fallback_dags(line()) == []


def test_a_task_process_builds_only_its_own_dag(monkeypatch):
    class Asked:
        dag_id = "relay__watchdog"

    monkeypatch.setattr(operations, "get_parsing_context", Asked)
    assert [dag.dag_id for dag in operations_dags()] == ["relay__watchdog"]
    Asked.dag_id = "relay__fallback__old__c"
    monkeypatch.setattr(fallback, "get_parsing_context", Asked)
    assert [dag.dag_id for dag in fallback_dags(with_fallback())] == ["relay__fallback__old__c"]


def test_every_dag_can_be_serialized_and_says_what_it_is_for():
    for dag in [*operations_dags(), *fallback_dags(with_fallback())]:
        assert DagSerialization.to_dict(dag)
        assert dag.doc_md
        assert "relay" in dag.tags


def test_the_form_offers_every_action():
    dag = next(d for d in operations_dags() if d.dag_id == "relay__admin")
    assert dag.params.get_param("action").schema["enum"] == [action.value for action in Action]
    for action in Action:
        words = action.value.removeprefix("open ").removeprefix("close ")
        assert words in (dag.doc_md or "")

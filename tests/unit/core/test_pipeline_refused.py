"""Declarations of a wrong type, or that the ledger or Airflow would choke on later, are refused at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_relay.core.pipeline import END, Pipeline, PipelineError, Stage, Window

STAGE = Stage("a", schedule="@daily")


def stage(**fields: Any) -> Pipeline:
    return Pipeline("p", [Stage("a", **{"schedule": "@daily", **fields})])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"keys": "agents"}, "stage 'a': keys='agents': give a tuple of names, one as ('agents',)"),
        ({"keys": (1,)}, "stage 'a': keys=(1,)"),
        ({"keys": ("",)}, "stage 'a': key '': give 1 to 200"),
        ({"keys": ("k" * 201,)}, "give 1 to 200 printable characters"),
        ({"keys": ("p.a",)}, "stage 'a': every run of it holds 'p.a' already"),
        ({"keys": ("airflow.runs",)}, "stage 'a': every run of it holds 'airflow.runs' already"),
        ({"keys": ("budget.p",)}, "stage 'a': key 'budget.p'"),
        ({"to": None}, "stage 'a': to=None"),
        ({"to": ["b"]}, "stage 'a': to=['b']"),
        ({"to": {1: END}}, "stage 'a': outcome 1: give a string"),
        ({"to": {"o" * 201: END}}, "give a string of 1 to 200 characters"),
        ({"status": None}, "stage 'a': status=None"),
        ({"status": "s" * 65}, "give at most 64 characters"),
        ({"priority": "high"}, "stage 'a': priority='high'"),
        ({"priority": 1.5}, "stage 'a': priority=1.5"),
        ({"priority": 2**40}, "priority=1099511627776: give a whole number between -1000000 and 1000000"),
        ({"timeout": timedelta.max}, "give at most 366 days"),
        ({"window": ("06:00", "22:00")}, "stage 'a': window=('06:00', '22:00')"),
        ({"window": Window(start="06:00", end=None)}, "stage 'a': window=Window("),  # type: ignore[arg-type]
        ({"window": Window(start="06:00\n", end="22:00")}, "give times as 'HH:MM'"),
        ({"fallback": None}, "stage 'a': fallback=None"),
        ({"schedule": "0 0 30 2 *"}, "stage 'a': '0 0 30 2 *' never comes up"),
        ({"outcome_field": ""}, "stage 'a': outcome_field=''"),
    ],
)
def test_a_stage_is_refused_with_its_name_the_field_and_the_cure(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError) as refused:
        stage(**fields)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("airflow", {}, "the name 'airflow' is taken"),
        ("P2", {}, "the name 'P2' is taken"),
        ("p3", {}, "the name 'p3' is taken"),
        ("p", {"timezone": None}, "timezone=None"),
        ("p", {"klass": "P9"}, "klass='P9': give one of P0, P1, P2, P3"),
        ("p", {"max_in_progress": "5"}, "max_in_progress='5'"),
        ("p", {"max_in_progress": True}, "max_in_progress=True"),
        ("p", {"limits": ["agents"]}, "limits=['agents']"),
        ("p", {"limits": {"agent": 4}}, "limits['agent']: no stage needs this key"),
        ("p", {"description": None}, "description=None"),
        ("p", {"stages": STAGE}, "give a list of Stage objects"),
        ("p", {"stages": ["a"]}, "'a' is no Stage"),
        ("p", {"stages": None}, "stages=None"),
    ],
)
def test_a_pipeline_is_refused_with_its_name_the_field_and_the_cure(
    name: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        Pipeline(name, **{"stages": [STAGE], **fields})
    assert f"Pipeline {name!r}: " in str(refused.value)
    assert says in str(refused.value)


def test_lists_and_plain_words_are_accepted_where_they_say_the_same() -> None:
    pipeline = Pipeline(
        "p",
        (Stage("a", schedule="@daily", keys=["agents"], limit=2),),  # type: ignore[arg-type]
        klass="P3",  # type: ignore[arg-type]
        limits={"agents": 4, "p.a": 2, "airflow.runs": 10},
    )
    assert pipeline.keys("a") == ("p.a", "agents")
    assert pipeline.klass.value == "P3"

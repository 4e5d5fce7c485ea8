"""The overnight example as a DAG file: it parses, has the document's times, and refuses impossible ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from airflow_relay.core.barrier import BarrierSettingsError

FILE = Path(__file__).parents[2] / "dags" / "overnight" / "overnight.py"
NAMES = ("settings", "metrics", "docstrings", "deprecations")


def load():
    return DagBag(dag_folder=str(FILE), load_op_links=False)


def test_file_has_the_night_and_one_dag_for_each_track():
    bag = load()
    assert bag.import_errors == {}
    assert set(bag.dags) == {"overnight", *(f"overnight_track_{name}" for name in NAMES)}


def test_four_tracks_barrier_follow_up_consolidation_in_this_order():
    dag = load().dags["overnight"]
    assert [dag.get_task(t).downstream_task_ids for t in ("dispatch", "barrier", "follow_up")] == [
        {"barrier"},
        {"follow_up", "consolidate"},
        {"consolidate"},
    ]
    assert [track.name for track in dag.get_task("dispatch").tracks] == list(NAMES)
    assert dag.get_task("dispatch").tracks == dag.get_task("barrier").tracks


def test_times_are_the_documents_unless_the_environment_says_otherwise(monkeypatch):
    barrier = load().dags["overnight"].get_task("barrier").barrier
    assert (barrier.first_poll, barrier.poll_interval, barrier.ceiling) == (
        timedelta(hours=3),
        timedelta(minutes=30),
        timedelta(hours=14),
    )
    monkeypatch.setenv("RELAY_OVERNIGHT_FIRST_POLL", "15")
    monkeypatch.setenv("RELAY_OVERNIGHT_POLL_INTERVAL", "10")
    monkeypatch.setenv("RELAY_OVERNIGHT_CEILING", "90")
    monkeypatch.setenv("RELAY_OVERNIGHT_SCHEDULE", "none")
    dag = load().dags["overnight"]
    assert dag.get_task("barrier").barrier.ceiling == timedelta(seconds=90)
    assert dag.schedule is None


@pytest.mark.parametrize(("variable", "value"), [("FIRST_POLL", "60000"), ("CEILING", "soon")])
def test_contradicting_environment_is_an_import_error_that_names_it(monkeypatch, variable, value):
    monkeypatch.setenv(f"RELAY_OVERNIGHT_{variable}", value)
    errors = load().import_errors
    assert len(errors) == 1
    text = next(iter(errors.values()))
    assert BarrierSettingsError.__name__ in text or f"RELAY_OVERNIGHT_{variable}" in text

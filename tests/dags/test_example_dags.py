"""Every DAG file of the example deployment: imports, reaches for nothing, is wired as a stage must be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from include.content.pipeline import content

from airflow_relay.core.completion import HAND_OFF_TASK_ID
from airflow_relay.dags.stage import MAX_ACTIVE_RUNS

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "dags").rglob("*.py"))
Reports = dict[str, Any]


@pytest.fixture(scope="module")
def reports(parse_files: Callable[..., Reports]) -> Reports:
    return parse_files(FILES)


@pytest.fixture(scope="module")
def dags(reports: Reports) -> Reports:
    return {dag_id: dag for found in reports.values() for dag_id, dag in found["dags"].items()}


@pytest.fixture(scope="module")
def stage_dags(dags: Reports) -> Reports:
    return {
        dag_id: dag
        for dag_id, dag in dags.items()
        if any(t.startswith("stage:") for t in dag["tags"]) and "fallback" not in dag["tags"]
    }


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_it_imports_without_network_database_variables_or_connections(reports: Reports, file: Path) -> None:
    found = reports[file.name]
    assert found["error"] is None
    assert found["dags"], "a DAG file without a DAG"
    assert found["warnings"] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_it_reads_no_file_but_python_code(reports: Reports, file: Path) -> None:
    assert reports[file.name]["read"] == []


def test_report_47_no_task_waits_for_a_pool_that_somebody_would_have_to_make(dags: Reports) -> None:
    assert {pool for dag in dags.values() for pool in dag["pools"]} == {"default_pool"}


def test_each_stage_of_the_content_pipeline_has_its_dag(stage_dags: Reports) -> None:
    assert {content.dag_id(s.name) for s in content.stages} <= set(stage_dags)


def test_only_entry_stages_have_a_schedule(stage_dags: Reports) -> None:
    of_content = {d for d in stage_dags if d.startswith("content__")}
    assert [d for d in sorted(of_content) if stage_dags[d]["scheduled"]] == [content.dag_id("research")]


def test_every_task_of_a_stage_body_is_guarded_and_the_hand_off_is_the_teardown(stage_dags: Reports) -> None:
    for dag in stage_dags.values():
        assert dag["teardowns"] == [HAND_OFF_TASK_ID]
        assert dag["guarded"] == sorted(set(dag["tasks"]) - {HAND_OFF_TASK_ID, *dag["setups"]})


def test_the_dispatcher_alone_limits_stage_runs(stage_dags: Reports) -> None:
    assert {dag["max_active_runs"] for dag in stage_dags.values()} == {MAX_ACTIVE_RUNS}


def test_each_dag_of_relay_says_what_it_is(dags: Reports) -> None:
    ours = {dag_id: dag for dag_id, dag in dags.items() if "relay" in dag["tags"]}
    assert len(ours) > len(content.stages)
    assert [dag_id for dag_id, dag in ours.items() if not dag["documented"]] == []


REACHES_OUT = {
    "variable.py": "from airflow.sdk import Variable\nVariable.get('x')\n",
    "connection.py": "from airflow.sdk import BaseHook\nBaseHook.get_connection('relay_ledger')\n",
    "network.py": "import socket\nsocket.create_connection(('127.0.0.1', 1))\n",
    "database.py": "import sqlite3\nsqlite3.connect(':memory:')\n",
}


@pytest.fixture(scope="module")
def bad_reports(parse_files: Callable[..., Reports], tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("reaching")
    for name, code in REACHES_OUT.items():
        (folder / name).write_text(code)
    return parse_files([folder / name for name in REACHES_OUT])


@pytest.mark.parametrize("name", REACHES_OUT)
def test_a_file_that_reaches_out_is_caught(bad_reports: Reports, name: str) -> None:
    assert "parsing " in (bad_reports[name]["error"] or "")

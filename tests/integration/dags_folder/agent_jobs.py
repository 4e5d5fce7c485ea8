"""Agent jobs as DAGs: one stage of a pipeline, and a plain mapped DAG outside of Relay's stages."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_relay import AgentJobOperator, Pipeline, Stage, stage_dag

CONNECTION = "agent_of_test"
RETRIES = int(os.environ.get("AGENT_JOBS_RETRIES", "3"))
"""The crash tests kill more often than a deployment would retry."""

# Each task process imports this file: so a test arms a crash point for the next process to come.
armed = Path(os.environ.get("AIRFLOW_HOME", ".")) / "crash_at"
if armed.exists():
    os.environ["RELAY_TEST_MODE"] = "1"
    os.environ["RELAY_CRASH_AT"] = armed.read_text()

agents = Pipeline("agents", [Stage("ask", status="asked", schedule="0 7 1 1 *")])


def asked_for() -> list[dict[str, Any]]:
    """Items that the test has put into a folder; each is taken once."""
    found = []
    for file in sorted(Path(os.environ["AIRFLOW_HOME"], "intake").glob("*.json")):
        found.append(json.loads(file.read_text()))
        file.unlink()
    return found


SETTINGS: dict[str, Any] = {
    "conn_id": CONNECTION,
    "model": "extractive/publish",
    "poll_interval": 1,
    "timeout": timedelta(hours=1),
    "retries": RETRIES,
    "retry_delay": timedelta(seconds=1),
}


@stage_dag(agents, "ask", intake=asked_for)
def ask() -> Any:
    """Ask an agent; what goes wrong at the server is in the item's payload."""
    asked = AgentJobOperator(
        task_id="ask",
        input='{"draft": "# {{ item().key }}\\n\\nA pool has a fixed number of slots [1]."}',
        metadata={"fault": "{{ item().payload.get('fault') or 'slow:seconds=3' }}"},
        **SETTINGS,
    )

    @task(retries=RETRIES - 3, retry_delay=timedelta(seconds=1))
    def use(answer: dict[str, Any]) -> dict[str, Any]:
        gate = Path(os.environ["AIRFLOW_HOME"]) / "signals" / "use_fails"
        if gate.exists():
            raise RuntimeError("the last step fails as asked")
        return {"title": answer["data"]["title"], "job": answer["job"]["id"]}

    return use(asked.output)


with DAG("agents_plain", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
    AgentJobOperator.partial(
        task_id="ask",
        metadata={"fault": "slow:seconds=2"},
        **SETTINGS,
    ).expand(input=[f'{{"draft": "# Page {n}\\n\\nText [1]."}}' for n in range(3)])

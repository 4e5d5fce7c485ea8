"""A pipeline and the operations DAGs in one file, so that a test can set switches for any of their tasks.

Each task process imports this file anew. What lies in ``$AIRFLOW_HOME/switches`` becomes its environment: a
crash point to die at, or a clock that is ahead.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from airflow.sdk import task

from airflow_relay import END, Pipeline, Stage, current_item, operations_dags, stage_dag

for switch in Path(os.environ["AIRFLOW_HOME"], "switches").glob("RELAY_*"):
    os.environ["RELAY_TEST_MODE"] = "1"
    os.environ[switch.name] = switch.read_text()

crash = Pipeline(
    "crash",
    [
        Stage("first", status="firsted", to="second", schedule="0 7 1 1 *", limit=2),
        Stage("second", status="seconded", to="third", limit=12),
        Stage("third", status="thirded", to=END, limit=2),
    ],
)


def nothing_new() -> list[Any]:
    return []


@task
def work() -> dict[str, Any]:
    """``wait`` waits for the signal ``<key>.<stage>``, ``fail`` fails until it is there."""
    item = current_item()
    asked = (item.payload or {}).get(item.stage)
    signal = Path(os.environ["AIRFLOW_HOME"]) / "signals" / f"{item.slug}.{item.stage}"
    if asked == "fail" and not signal.exists():
        raise RuntimeError(f"{item.stage} fails as asked")
    while asked == "wait" and not signal.exists():
        time.sleep(0.1)
    return {"stage": item.stage}


@stage_dag(crash, "first", intake=nothing_new)
def first() -> Any:
    """Begin."""
    return work()


@stage_dag(crash, "second")
def second() -> Any:
    """Go on."""
    return work()


@stage_dag(crash, "third")
def third() -> Any:
    """End."""
    return work()


for dag in operations_dags():
    globals()[dag.dag_id] = dag

"""A pipeline that is broken on purpose, for the tests of recovery."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from airflow.sdk import task

from airflow_relay import DISCARD, END, Pipeline, Stage, current_item, fallback_dags, stage_dag

# Each task process imports this file: so a test arms a crash point for the next process to come.
armed = Path(os.environ.get("AIRFLOW_HOME", ".")) / "mend_crash_at"
if armed.exists():
    os.environ["RELAY_TEST_MODE"] = "1"
    os.environ["RELAY_CRASH_AT"] = armed.read_text()

mend = Pipeline(
    "mend",
    [
        Stage("first", status="firsted", to="second", schedule="0 7 1 1 *"),
        Stage("second", status="seconded", to="choose", limit=3, fallback=["0 7 1 1 *", "0 8 1 1 *"]),
        Stage("choose", status="chosen", to={"ship": END, "drop": DISCARD}),
    ],
)


def nothing_new() -> list[Any]:
    return []


@task
def work() -> dict[str, Any]:
    """``fail`` and ``block`` fail until the signal ``<key>.<stage>`` exists, ``wait`` waits for it.

    ``block`` is an error of the item, not of the service: it opens no breaker.
    """
    item = current_item()
    asked = (item.payload or {}).get(item.stage)
    signal = Path(os.environ["AIRFLOW_HOME"]) / "signals" / f"{item.slug}.{item.stage}"
    if asked == "fail" and not signal.exists():
        raise RuntimeError(f"{item.stage} fails as asked")
    if asked == "block" and not signal.exists():
        raise PermissionError("The answer was blocked by the content policy")
    while asked == "wait" and not signal.exists():
        time.sleep(0.1)
    return {"stage": item.stage, "outcome": "ship"}


@stage_dag(mend, "first", intake=nothing_new)
def first() -> Any:
    """Begin."""
    return work()


@stage_dag(mend, "second")
def second() -> Any:
    """Go on, or break."""
    return work()


@stage_dag(mend, "choose")
def choose() -> Any:
    """Route by the outcome."""
    return work()


for dag in fallback_dags(mend):
    globals()[dag.dag_id] = dag

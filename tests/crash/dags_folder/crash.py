"""Pipelines and the operations DAGs in one file, so that a test can set switches for any of their tasks.

Each task process imports this file anew. What lies in ``$AIRFLOW_HOME/switches`` becomes its environment: a
crash point to die at, or a clock that is ahead.

* ``crash`` does as the item's payload says; its second stage has two ends, so that it is handed off by the
  hand-off's own task, and the others by their last task;
* ``march`` takes its items from a folder and works without any retry of Airflow; two of its stages have two
  ends;
* ``patient`` waits for long: in the triggerer, or in a process whose task Airflow tries again.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import task

from airflow_relay import END, Pipeline, Stage, current_item, operations_dags, stage_dag

HOME = Path(os.environ["AIRFLOW_HOME"])

for switch in HOME.glob("switches/RELAY_*"):
    os.environ["RELAY_TEST_MODE"] = "1"
    os.environ[switch.name] = switch.read_text()

NEVER = "0 7 1 1 *"

crash = Pipeline(
    "crash",
    [
        Stage("first", status="firsted", to="second", schedule=NEVER, limit=2),
        Stage("second", status="seconded", to="third", limit=12),
        Stage("third", status="thirded", to=END, limit=2),
    ],
)

march = Pipeline(
    "march",
    [
        Stage("first", status="firsted", to="second", schedule=NEVER, limit=6),
        Stage("second", status="seconded", to="third", limit=4),
        Stage("third", status="thirded", to=END, limit=3),
    ],
)

patient = Pipeline(
    "patient",
    [
        Stage("begin", status="begun", to="wait", schedule=NEVER),
        Stage("wait", status="waited", to="retried", expected=timedelta(hours=6)),
        Stage("retried", status="retried", to="narrow"),
        Stage("narrow", status="narrowed", to=END, limit=1),
    ],
)


class HttpError(RuntimeError):
    """What a client library raises for an answer that is none."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"the model answered with {status_code}")
        self.status_code = status_code


def nothing_new() -> list[Any]:
    return []


def signalled(stage: str) -> bool:
    """Whether the test has given the signal ``<key>.<stage>``."""
    return (HOME / "signals" / f"{current_item().slug}.{stage}").exists()


@task
def work() -> dict[str, Any]:
    """Until the signal comes: ``wait`` waits, ``fail`` raises, a number is an HTTP status to raise."""
    item = current_item()
    asked = (item.payload or {}).get(item.stage)
    if isinstance(asked, int) and not signalled(item.stage):
        raise HttpError(asked)
    if asked == "fail" and not signalled(item.stage):
        raise RuntimeError(f"{item.stage} fails as asked")
    while asked == "wait" and not signalled(item.stage):
        time.sleep(0.1)
    return {"stage": item.stage}


@stage_dag(crash, "first", intake=nothing_new)
def first() -> Any:
    """Begin."""
    return work()


@task
def beside() -> None:
    """Nothing."""


@stage_dag(crash, "second")
def second() -> Any:
    """Go on."""
    beside()
    return work()


@stage_dag(crash, "third")
def third() -> Any:
    """End."""
    return work()


def in_the_folder() -> list[str]:
    """Keys that the test has written: one a line. Reading them again finds the same."""
    return (HOME / "march.txt").read_text().splitlines()


@task
def step(**context: Any) -> dict[str, Any]:
    """Say on the disk that this run works, before and after a while that leaves time to be killed in."""
    run_id = context["dag_run"].run_id
    for when in ("begun", "ended"):
        with (HOME / f"{when}.txt").open("a") as told:
            told.write(f"{run_id}\n")
        time.sleep(0.5 if when == "begun" else 0)
    return {"stage": current_item().stage}


@stage_dag(march, "first", intake=in_the_folder)
def march_first() -> Any:
    """Begin."""
    return step()


@stage_dag(march, "second")
def march_second() -> Any:
    """Go on."""
    beside()
    return step()


@stage_dag(march, "third")
def march_third() -> Any:
    """End."""
    beside()
    return step()


@stage_dag(patient, "begin", intake=nothing_new)
def begin() -> Any:
    """Begin."""
    return work()


@stage_dag(patient, "wait")
def wait() -> Any:
    """Wait in the triggerer for the signal."""
    FileSensor(
        task_id="wait",
        filepath=f"{HOME}/signals/{{{{ item().slug }}}}.wait",
        deferrable=True,
        poke_interval=2,
    )


@stage_dag(patient, "retried")
def retried() -> Any:
    """Work in a process that Airflow starts again when it is lost."""
    return work.override(retries=3, retry_delay=timedelta(seconds=1))()


@stage_dag(patient, "narrow")
def narrow() -> Any:
    """One at a time."""
    return work.override(retries=3, retry_delay=timedelta(seconds=1))()


for dag in operations_dags():
    globals()[dag.dag_id] = dag

"""A pipeline whose stages do what the item's payload says: for everything that people do by hand."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from airflow.sdk import task

from airflow_relay import DISCARD, END, Pipeline, Stage, current_item, stage_dag

by_hand = Pipeline(
    "by_hand",
    [
        Stage("first", status="firsted", to="second", schedule="0 7 1 1 *"),
        Stage("second", status="seconded", to="choose"),
        Stage("choose", status="chosen", to={"ship": "last", "drop": DISCARD}),
        Stage("last", status="lasted", to=END),
    ],
)


def nothing_new() -> list[Any]:
    return []


def signal_file(name: str) -> Path:
    return Path(os.environ["AIRFLOW_HOME"]) / "signals" / name


@task
def work() -> dict[str, Any]:
    """``{"second": "fail"}`` fails until the signal ``<key>.second`` exists, ``"wait"`` waits for it."""
    item = current_item()
    asked = (item.payload or {}).get(item.stage)
    signal = signal_file(f"{item.slug}.{item.stage}")
    if asked == "fail" and not signal.exists():
        raise RuntimeError(f"{item.stage} fails as asked")
    while asked == "wait" and not signal.exists():
        time.sleep(0.1)
    return {"stage": item.stage, "epoch": item.epoch, "outcome": (item.payload or {}).get("outcome", "ship")}


@stage_dag(by_hand, "first", intake=nothing_new)
def first() -> Any:
    """Begin."""
    return work()


@stage_dag(by_hand, "second")
def second() -> Any:
    """Go on."""
    return work()


@stage_dag(by_hand, "choose")
def choose() -> Any:
    """Route by the outcome."""
    return work()


@stage_dag(by_hand, "last")
def last() -> Any:
    """End."""
    return work()

"""A panel whose critics have little time, and one with a scale that the critics leave."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import task

from airflow_relay import END, PERSON, Panel, Pipeline, Stage, current_item, panel, stage_dag

CRITICS = ("structure", "voice", "ethics", "shareability", "legal_accuracy", "research_rigor")
TEXT = """# How a pool limits tasks

A pool has a fixed number of slots [1]. Each running task takes one of them, and a task may ask for more [1].

## What happens

A task waits while no slot is free [2]. It starts when another ends [2]. People change slots at any time [3].
"""
PANELS = {
    "panel": Panel(critics=CRITICS, threshold=5),
    "strict": Panel(critics=CRITICS, threshold=5, highest=6),
}


def asked_for(name: str) -> Callable[[], list[dict[str, Any]]]:
    """Items that the test has put into a folder; each is taken once."""

    def intake() -> list[dict[str, Any]]:
        found = []
        for file in sorted(Path(os.environ["AIRFLOW_HOME"], name).glob("*.json")):
            found.append(json.loads(file.read_text()))
            file.unlink()
        return found

    return intake


def build(name: str, declared: Panel) -> None:
    pipeline = Pipeline(
        name,
        [
            Stage("gather", to="critique", schedule="0 7 1 1 *"),
            Stage("critique", to={"pass": END, "revise": PERSON}),
        ],
    )

    @stage_dag(pipeline, "gather", intake=asked_for(name))
    def gather() -> Any:
        @task
        def text() -> str:
            return TEXT

        return text()

    @stage_dag(pipeline, "critique")
    def critique() -> Any:
        @task
        def draft() -> dict[str, str]:
            return {"draft": current_item().results["gather"]}

        def critic(name: str) -> dict[str, Any]:
            return {"metadata": {"job": f"critique/{name}", "panel": "{{ item().key }}"}}

        return panel(
            declared,
            input=draft(),
            each=critic,
            model="extractive",
            poll_interval=1,
            timeout=timedelta(seconds=15),
            retries=0,
        )


for name, declared in PANELS.items():
    build(name, declared)

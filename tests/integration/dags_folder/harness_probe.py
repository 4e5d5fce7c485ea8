"""DAGs that the tests of the Airflow harness run."""

from __future__ import annotations

import os

from airflow.sdk import dag, task


@dag(schedule=None)
def harness__probe():
    @task
    def greet(dag_run=None) -> dict:
        name = dag_run.conf.get("name", "nobody")
        print(f"good morning, {name}")  # noqa: T201 - it becomes a line of the task log
        return {"greeted": name, "pid": os.getpid()}

    @task
    def demand(greeting: dict, dag_run=None) -> None:
        if dag_run.conf.get("refuse"):
            raise ValueError(f"refused to serve {greeting['greeted']}")

    demand(greet())


@dag(schedule=None)
def harness__sleeper():
    @task
    def sleep_long() -> None:
        import time

        time.sleep(600)

    sleep_long()


harness__probe()
harness__sleeper()

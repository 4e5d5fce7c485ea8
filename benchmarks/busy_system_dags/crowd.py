"""A pipeline whose work waits outside: its one stage is deferred for as long as its item says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, get_current_context

from airflow_relay import END, Pipeline, Stage, current_item, stage_dag

crowd = Pipeline("crowd", [Stage("wait", to=END, schedule="0 0 1 1 *", limit=60)])


class Wait(BaseOperator):
    """Deferred for the ``seconds`` of the item's payload."""

    def execute(self, context: Any) -> None:  # noqa: ARG002 - the base's signature
        seconds = current_item().payload["seconds"]
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=seconds)), method_name="done")

    def done(self, context: Any, event: Any) -> None:
        """The time is over."""


def found() -> list[dict[str, Any]]:
    conf = get_current_context()["dag_run"].conf or {}
    return [
        {"key": f"{conf['name']}-{i}", "payload": {"seconds": conf["seconds"]}}
        for i in range(conf.get("count", 0))
    ]


@stage_dag(crowd, "wait", intake=found)
def wait() -> Any:
    return Wait(task_id="wait")


dag = wait

"""Two chains of four empty stages: one by Relay, one by plain TriggerDagRunOperator."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, get_current_context, get_parsing_context, task

from airflow_relay import END, Pipeline, Stage, stage_dag

NAMES = ("one", "two", "three", "four")

relayed = Pipeline(
    "relayed",
    [
        Stage(name, to=NAMES[i + 1] if i + 1 < len(NAMES) else END, schedule="0 0 1 1 *" if i == 0 else None)
        for i, name in enumerate(NAMES)
    ],
)


@task
def work() -> str:
    return "done"


def body() -> Any:
    return work()


def asked() -> list[str]:
    """The intake: the keys that the benchmark has put into the run's conf."""
    return list((get_current_context()["dag_run"].conf or {}).get("keys", ()))


for index, name in enumerate(NAMES):
    dag = stage_dag(relayed, name, **({"intake": asked} if index == 0 else {}))(body)
    if dag is not None:
        globals()[dag.dag_id] = dag

    plain_id = f"plain__{name}"
    if get_parsing_context().dag_id in (None, plain_id):
        with DAG(plain_id, schedule=None, max_active_runs=1000) as plain:
            done = work()
            if index + 1 < len(NAMES):
                done >> TriggerDagRunOperator(
                    task_id="trigger",
                    trigger_dag_id=f"plain__{NAMES[index + 1]}",
                    trigger_run_id="{{ dag_run.run_id }}",
                    logical_date=None,
                )
        globals()[plain_id] = plain

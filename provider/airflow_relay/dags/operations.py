"""The operations DAGs: what keeps pipelines moving beside their stages."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from airflow.sdk import DAG, get_parsing_context
from airflow.timetables.trigger import DeltaTriggerTimetable

from airflow_relay.dags.stage import START_DATE
from airflow_relay.operators.tick import Tick

DISPATCH_DAG_ID: Final = "relay__dispatch"


def dispatch_dag(every: timedelta = timedelta(minutes=5)) -> DAG:
    """The tick."""
    with DAG(
        DISPATCH_DAG_ID,
        schedule=DeltaTriggerTimetable(every),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"relay"},
        doc_md=(
            "The tick: sends grants whose sender was lost, asks Airflow about runs that hold slots, takes "
            "back grants behind a paused DAG, and dispatches. Every other path is faster; this one is sure."
        ),
    ) as dag:
        Tick(task_id="tick", trigger_dag_id=DISPATCH_DAG_ID, retries=2, retry_delay=timedelta(seconds=10))
    return dag


def operations_dags() -> list[DAG]:
    """Every operations DAG; in a task process only the one that it runs."""
    makers = {DISPATCH_DAG_ID: dispatch_dag}
    asked = get_parsing_context().dag_id
    return [make() for dag_id, make in makers.items() if asked in (None, dag_id)]

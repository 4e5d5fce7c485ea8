"""Fallback DAGs: a stage's old cron schedule, paused until somebody needs it."""

from __future__ import annotations

from airflow.sdk import DAG, get_parsing_context
from airflow.timetables.trigger import MultipleCronTriggerTimetable

from airflow_relay.core.naming import fallback_dag_id
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.dags.stage import START_DATE
from airflow_relay.operators.fallback import FallbackServe


def fallback_dags(pipeline: Pipeline) -> list[DAG]:
    """A paused DAG for each stage that names a ``fallback`` schedule; in a task process only the one it runs.

    Unpause one, and on each of its slots every waiting item of that stage gets its run, once: the ready ones,
    and those failed ones that the sweep's rules let run again. Completion triggers may work at the same time.
    It uses the same ledger and the same dispatcher, limits and breakers included: it replaces triggers and
    tick, not the database.
    """
    asked = get_parsing_context().dag_id
    stages = [stage for stage in pipeline.stages if stage.fallback_schedules]
    return [
        _fallback_dag(pipeline, stage)
        for stage in stages
        if asked in (None, fallback_dag_id(pipeline.name, stage.name))
    ]


def _fallback_dag(pipeline: Pipeline, stage: Stage) -> DAG:
    with DAG(
        fallback_dag_id(pipeline.name, stage.name),
        schedule=MultipleCronTriggerTimetable(*stage.fallback_schedules, timezone=pipeline.timezone),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,
        tags={"relay", "fallback", f"pipeline:{pipeline.name}", f"stage:{stage.name}"},
        doc_md=(
            f"The old schedule of **{pipeline.name}.{stage.name}**. Unpause it when completion triggers do "
            "not serve the stage: on each slot every waiting item gets its run, once. It uses the same "
            "ledger, so it helps against lost triggers, not against a lost database."
        ),
    ) as dag:
        FallbackServe(
            task_id="serve",
            pipeline=pipeline.name,
            stage=stage.name,
            trigger_dag_id=pipeline.dag_id(stage.name),
            retries=2,
        )
    return dag

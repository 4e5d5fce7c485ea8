"""A stage whose run waits for other runs must not hold what they need, or all of them wait for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_relay.core.pipeline import Pipeline, PipelineError
from airflow_relay.core.states import AIRFLOW_RUNS_KEY


def refuse_waiting_for_own_keys(pipeline: Pipeline, stage: str, tasks: Iterable[Any]) -> None:
    """Check the body of a stage.

    Every stage run holds a unit of ``airflow.runs`` and of its stage's keys until it ends. So when enough
    runs of a stage wait for stage runs that need one of these, none of them ever gets it. Runs of plain DAGs
    hold no keys and may be waited for.

    :raises PipelineError: a task waits for runs of a stage of this pipeline; names the keys and the cure.
    """
    stages = {pipeline.dag_id(other.name): other.name for other in pipeline.stages}
    held = (AIRFLOW_RUNS_KEY, *pipeline.keys(stage))
    for dag_id in sorted(awaited_dags(tasks) & stages.keys()):
        shared = [key for key in held if key in (AIRFLOW_RUNS_KEY, *pipeline.keys(stages[dag_id]))]
        raise PipelineError(
            f"Stage {pipeline.name}.{stage} waits for runs of {dag_id}, which need the capacity keys "
            f"{', '.join(shared)} that it holds itself meanwhile: enough of them would wait for ever. "
            "Let the item go on to that stage by a route, or do the work in a plain DAG."
        )


def awaited_dags(tasks: Iterable[Any]) -> set[str]:
    """The DAGs whose runs some task waits for while its own run goes on: barriers, and Airflow's own ways."""
    tasks = list(tasks)
    found: set[str] = set()
    for task in tasks:
        found |= _awaited_by(task)
    if any(_value(task, "waits_for_dags") is not None for task in tasks):
        for task in tasks:
            found |= set(_value(task, "dispatched_dags") or ())
    return found


def _awaited_by(task: Any) -> set[str]:
    own = set(_value(task, "waits_for_dags") or ())
    if _value(task, "external_dag_id"):
        own.add(str(_value(task, "external_dag_id")))
    if _value(task, "trigger_dag_id") and _value(task, "wait_for_completion"):
        own.add(str(_value(task, "trigger_dag_id")))
    return own


def _value(task: Any, name: str) -> Any:
    """An attribute of an operator; of a mapped one, what it would be for its fixed arguments."""
    if not isinstance(task, MappedOperator):
        return getattr(task, name, None)
    if name in task.partial_kwargs:
        return task.partial_kwargs[name]
    if name in ("waits_for_dags", "dispatched_dags") and hasattr(task.operator_class, name):
        return frozenset(
            dag_id
            for track in task.partial_kwargs.get("tracks", ())
            if (dag_id := getattr(track, "dag_id", None))
        )
    return None

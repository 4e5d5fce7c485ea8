"""Stage DAGs: a decorator turns a function that builds ordinary Airflow tasks into the DAG of a stage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, Final, TypeGuard

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.definitions.xcom_arg import XComArg
from airflow.timetables.trigger import CronTriggerTimetable

from airflow_relay.core.completion import HAND_OFF_TASK_ID, StageShape
from airflow_relay.core.pipeline import DEFAULT_OUTCOME, Pipeline, PipelineError, Stage
from airflow_relay.dags.waiting import refuse_waiting_for_own_keys
from airflow_relay.item_context import item_macro
from airflow_relay.operators.guard import Guard
from airflow_relay.operators.hand_off import AtOnce, HandOff
from airflow_relay.policies.stage_retry import StageRetryPolicy, record_final

MAX_ACTIVE_RUNS: Final = 1000
"""The dispatcher is the only limit; a smaller number would let item runs suppress the intake's schedule."""

START_DATE: Final = datetime(2024, 1, 1, tzinfo=timezone.utc)

Body = Callable[[], Any]


def stage_dag(
    pipeline: Pipeline,
    name: str,
    *,
    intake: Callable[[], Iterable[Any]] | None = None,
    **dag_arguments: Any,
) -> Callable[[Body], DAG | None]:
    """Turn a function that builds tasks into the DAG of a stage.

    (The name has a reason: Airflow skips files in which the letters ``dag`` do not occur.)

    The function returns the task (or its output) whose value is the stage's result; without it later stages
    find none. A router's result is the outcome, or a mapping with an ``"outcome"``; when its body is a single
    task, that is the one. The function's docstring becomes the DAG's documentation.

    :param pipeline: the declaration.
    :param name: the stage.
    :param intake: of the entry stage only: finds new work; returns keys, mappings with ``key``, ``payload``
        and ``priority``, or ``NewItem`` values. It runs in each scheduled run of the entry stage.
    :param dag_arguments: passed on to ``DAG`` (``default_args``, ``params``, ``tags``, …).
    :raises PipelineError: the stage is unknown, or its body cannot be handed off.
    """
    declared = pipeline.stage(name)
    is_entry = declared.schedule is not None
    if intake is not None and not is_entry:
        raise PipelineError(
            f"Stage {pipeline.name}.{name} has an intake, but {pipeline.entry.name} is the entry."
        )
    if intake is None and is_entry:
        raise PipelineError(f"Stage {pipeline.name}.{name} is the entry: give it an intake=.")

    def build(body: Body) -> DAG | None:
        asked = get_parsing_context().dag_id
        if asked is not None and asked != pipeline.dag_id(name):
            return (
                None  # a task process needs its own DAG only: 50 stages in one file cost it no more than one
            )
        with DAG(  # noqa: AIR002 - the schedule is in the arguments
            pipeline.dag_id(name), **_dag_arguments(pipeline, declared, body, dag_arguments)
        ) as dag:
            result = body()
            _wire(dag, pipeline, declared, result, intake)
        return dag

    return build


def _dag_arguments(pipeline: Pipeline, declared: Stage, body: Body, given: dict[str, Any]) -> dict[str, Any]:
    schedule = (
        None
        if declared.schedule is None
        else CronTriggerTimetable(declared.schedule, timezone=pipeline.timezone)
    )
    form = {"item_id": Param(None, type=["null", "string"], title="Item", description=_FORM_HELP)}
    # No start_date: with one, unpausing the entry stage would start an intake for the slot that has passed.
    return {
        "catchup": False,
        "max_active_runs": MAX_ACTIVE_RUNS,
        "doc_md": _documentation(pipeline, declared, body),
        **given,
        "schedule": schedule,
        "params": {**given.get("params", {}), **form},
        "tags": {*given.get("tags", ()), "relay", f"pipeline:{pipeline.name}", f"stage:{declared.name}"},
        "user_defined_macros": {**given.get("user_defined_macros", {}), "item": item_macro},
    }


_HAND_OFF_HELP: Final = (
    f"`{HAND_OFF_TASK_ID}` sends the item on. It is skipped where the last task has done that already."
)

_FORM_HELP: Final = (
    "Key of the item to run this stage for. Leave it empty in the entry stage to run an intake."
)


def _documentation(pipeline: Pipeline, declared: Stage, body: Body) -> str:
    routes = "\n".join(
        f"| {outcome} | {getattr(target, 'value', target)} |" for outcome, target in declared.routes.items()
    )
    own = inspect.getdoc(body) or pipeline.description
    return (
        f"{own}\n\n---\nStage **{declared.name}** of the pipeline **{pipeline.name}**. Each run serves one "
        f"item; clear, retry and mark it as you would any run. {_HAND_OFF_HELP}\n\n"
        f"| outcome | next |\n|---|---|\n{routes}\n\n"
        f'To run it for one item by hand, trigger it with `{{"item_id": "<key>"}}`. '
        "What happened to an item: `airflow relay log <key>`."
    )


def _wire(
    dag: DAG,
    pipeline: Pipeline,
    declared: Stage,
    result: Any,
    intake: Callable[[], Iterable[Any]] | None,
) -> None:
    """Guard every task of the body and put the hand-off behind its leaves."""
    where = f"Stage {pipeline.name}.{declared.name}"
    tasks = list(dag.tasks)
    work = [t for t in tasks if not t.is_setup and not t.is_teardown]
    if not work:
        raise PipelineError(f"{where} has no tasks: build at least one in its function.")
    if HAND_OFF_TASK_ID in dag.task_ids:
        raise PipelineError(f"{where}: the task id {HAND_OFF_TASK_ID!r} is taken by Relay: choose another.")
    refuse_waiting_for_own_keys(pipeline, declared.name, tasks)
    leaves = [t for t in tasks if not t.downstream_task_ids]
    work_ids = {t.task_id for t in work}
    ends = [t.task_id for t in work if not set(t.downstream_task_ids) & work_ids]
    result_task_id = _result_task_id(where, result)
    if declared.is_router and result_task_id is None:
        if len(work) > 1 and DEFAULT_OUTCOME not in declared.routes:
            raise PipelineError(
                f"{where} is a router, and its function returns nothing: return the task whose value is the "
                "outcome (`return decide()`)."
            )
        result_task_id = work[0].task_id if len(work) == 1 else None
    shape = StageShape(tuple(t.task_id for t in work), tuple(ends), result_task_id)
    for task in work:
        guard(task, pipeline, declared.name, shape)
    hand_off = HandOff(
        task_id=HAND_OFF_TASK_ID,
        pipeline=pipeline,
        stage=declared.name,
        shape=shape,
        intake=intake,
        doc_md=_HAND_OFF_HELP,
    )
    leaves >> hand_off
    hand_off.as_teardown(on_failure_fail_dagrun=True)
    if len(leaves) == 1 and _ends_in_its_process(leaves[0]):
        leaves[0].on_success_callback = _callbacks(AtOnce(hand_off), leaves[0].on_success_callback)


def _ends_in_its_process(task: BaseOperator | MappedOperator) -> TypeGuard[BaseOperator]:
    """Whether the success of this task, seen in its own process, is the end of the stage's work."""
    return (
        isinstance(task, BaseOperator)
        and not task.is_setup
        and not task.is_teardown
        # Such a task has no process, unless a callback asks for one.
        and not task.inherits_from_empty_operator
        and task.get_closest_mapped_task_group() is None
    )


def guard(
    task: BaseOperator | MappedOperator, pipeline: Pipeline, stage_name: str, shape: StageShape
) -> None:
    """Set guard, retry policy and failure callback on an operator, in front of what its author set.

    After the body is built, since ``@task(pre_execute=…)`` and a task group's default_args replace what
    ``default_args`` say.
    """
    if isinstance(task, MappedOperator):
        arguments = task.partial_kwargs
        arguments["pre_execute"] = Guard(pipeline, stage_name, shape, arguments.get("pre_execute"))
        arguments["retry_policy"] = StageRetryPolicy(arguments.get("retry_policy"))
        arguments["on_failure_callback"] = _callbacks(record_final, arguments.get("on_failure_callback"))
        task.start_from_trigger = False
    else:
        task._pre_execute_hook = Guard(pipeline, stage_name, shape, task._pre_execute_hook)  # noqa: SLF001 - no public setter
        task.retry_policy = StageRetryPolicy(task.retry_policy)
        task.on_failure_callback = _callbacks(record_final, task.on_failure_callback)
        # Such a task would start in the triggerer, before any guard.
        task.start_from_trigger = False


def _callbacks(first: Callable[[Any], None], author: Any) -> list[Any]:
    own = [] if author is None else list(author) if isinstance(author, list | tuple) else [author]
    return [first, *own]


def _result_task_id(where: str, result: Any) -> str | None:
    if result is None:
        return None
    if isinstance(result, XComArg):
        result = next(iter(result.iter_references()))[0]
    task_id = getattr(result, "task_id", None)
    if not isinstance(task_id, str):
        raise PipelineError(
            f"{where}: its function returned {result!r}. "
            "Return the task whose value is the stage's result, or None."
        )
    return task_id

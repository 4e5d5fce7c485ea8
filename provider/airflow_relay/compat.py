"""Airflow internals without a public face, in one place; a contract test checks them against Airflow."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Final

from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSensorTimeout,
    AirflowSkipException,
    ErrorType,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, SetXCom, SkipDownstreamTasks, TriggerDagRun

log: Final = logging.getLogger(__name__)


class TargetDagError(RuntimeError):
    """A DAG could not be triggered. A retry helps once it can be.

    :param is_refused: Airflow has answered that the DAG is missing or does not import; otherwise it has
        answered nothing of use.
    """

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


def in_task_process() -> bool:
    """Whether this process runs a task and may ask its supervisor."""
    return getattr(task_runner, "SUPERVISOR_COMMS", None) is not None


def trigger_dag_run(
    *,
    dag_id: str,
    run_id: str,
    conf: dict[str, Any],
    note: str | None = None,
    run_after: datetime | None = None,
) -> bool:
    """Start one DAG run from a task, with no logical date.

    :return: false when a run with this very run id exists already.
    :raises TargetDagError: the DAG is missing or has import errors; names it.
    """
    message = TriggerDagRun(
        dag_id=dag_id, run_id=run_id, conf=conf, logical_date=None, run_after=run_after, note=note
    )
    try:
        reply = task_runner.SUPERVISOR_COMMS.send(message)
    except AirflowRuntimeError as error:
        raise _cannot_trigger(dag_id, error.error) from error
    if not isinstance(reply, ErrorResponse):
        return True
    if reply.error is ErrorType.DAGRUN_ALREADY_EXISTS:
        # Airflow says this of any unique violation. Without a logical date it can only be the run id.
        return False
    raise _cannot_trigger(dag_id, reply)


def _cannot_trigger(dag_id: str, error: ErrorResponse) -> TargetDagError:
    status = (error.detail or {}).get("status_code")
    if status == 404:
        return TargetDagError(f"DAG {dag_id!r} does not exist. Deploy it: {_WAITS}.", is_refused=True)
    if status == 400:
        text = f"DAG {dag_id!r} cannot be triggered, probably because its file has import errors."
        return TargetDagError(f"{text} Fix it: {_WAITS}.", is_refused=True)
    text = f"DAG {dag_id!r} could not be triggered ({error.error.value}: {error.detail})."
    return TargetDagError(f"{text} The grant is sent again.")


_WAITS: Final = "its items wait and are tried again"


def is_dag_paused(dag_id: str) -> bool:
    """Whether a DAG is paused; one that is missing is not (its trigger will say so)."""
    try:
        return bool(task_runner.RuntimeTaskInstance.get_dag(dag_id).is_paused)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == 404:
            return False
        raise


def task_states(
    dag_id: str, run_ids: list[str], *, task_ids: list[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Run id → task → state, of the runs that Airflow has. Mapped tasks appear as ``<task_id>_<index>``.

    :param task_ids: only these tasks; None: all.
    """
    if not run_ids:  # an empty list would return every run of the DAG
        return {}
    return task_runner.RuntimeTaskInstance.get_task_states(dag_id, run_ids=run_ids, task_ids=task_ids)


def skip_task(task_id: str) -> None:
    """Skip a task of the same run that has not started. Airflow leaves one that runs, or has ended, alone."""
    task_runner.SUPERVISOR_COMMS.send(SkipDownstreamTasks(tasks=[task_id]))


def push_link(dag_run: Any, task_id: str, *, key: str, address: str) -> None:
    """Store a link of another task of the same run, as Airflow does at the end of that task's own process.

    :param key: the link's ``xcom_key``.
    """
    # Links do not go through a backend for XComs: the API server reads them itself.
    task_runner.SUPERVISOR_COMMS.send(
        SetXCom(key=key, value=address, dag_id=dag_run.dag_id, run_id=dag_run.run_id, task_id=task_id)
    )


def dag_run_state(dag_id: str, run_id: str) -> str | None:
    """The state of a run, or ``None`` when Airflow does not know it."""
    try:
        return task_runner.RuntimeTaskInstance.get_dagrun_state(dag_id, run_id)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == 404:
            return None
        raise


def will_be_retried(ti: Any, error: BaseException) -> bool:
    """Whether Airflow runs the task again after this error, as far as its process can tell."""
    if isinstance(error, AirflowFailException | AirflowSensorTimeout | AirflowSkipException):
        return False
    context = getattr(ti, "_ti_context_from_server", None)
    if context is None or not context.should_retry:
        return False
    policy = getattr(getattr(ti, "task", None), "retry_policy", None)
    if policy is None:
        return True
    try:
        decision = policy.evaluate(error, ti.try_number, context.max_tries, None)
    except Exception:
        log.exception("The retry policy failed; Airflow then goes by the number of retries")
        return True
    return decision.action is not RetryAction.FAIL


def task_key(ti: Any) -> str:
    """The task's name as :func:`task_states` has it."""
    index = getattr(ti, "map_index", -1)
    return str(ti.task_id) if index is None or index < 0 else f"{ti.task_id}_{index}"

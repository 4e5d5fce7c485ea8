"""What Airflow's own database says, for the processes that may ask it: command line and API server.

Tasks, triggers and DAG files never import this module; they ask their supervisor (``compat``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from airflow.models import Connection, Variable
from airflow.models.dag import DagModel
from airflow.models.errors import ParseImportError
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.utils.session import create_session
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from airflow_relay.compat import TargetDagError

_BATCH: Final = 500


@dataclass(frozen=True, kw_only=True)
class DagStatus:
    """A DAG as Airflow knows it.

    :param is_stale: its file is gone, or no longer defines it.
    """

    dag_id: str
    is_paused: bool
    is_stale: bool
    has_import_errors: bool


@dataclass(frozen=True, kw_only=True)
class Component:
    """A scheduler, triggerer or DAG processor that has registered itself."""

    kind: str
    hostname: str
    is_alive: bool
    last_heartbeat: datetime | None


def why_unreachable() -> str | None:
    """What is wrong with Airflow's database, in one line; ``None`` when it answers."""
    try:
        with create_session() as session:
            session.execute(select(DagModel.dag_id).limit(1)).first()
    except SQLAlchemyError as error:
        return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    return None


def variable(name: str) -> str | None:
    """The text of a Variable, or ``None``."""
    value: Any = Variable.get(name, default_var=None)  # noqa: AIR311 - the SDK's sees no database here
    return None if value is None else str(value)


def connection(conn_id: str) -> Any | None:
    """The connection, from wherever Airflow keeps it, or ``None``."""
    try:
        return Connection.get_connection_from_secrets(conn_id)  # noqa: AIR311 - see variable()
    except AirflowNotFoundException:
        return None


def dag_statuses(dag_ids: Collection[str]) -> dict[str, DagStatus]:
    """DAG id → status, of those that Airflow knows."""
    wanted = sorted(dag_ids)
    found: dict[str, DagStatus] = {}
    with create_session() as session:
        for start in range(0, len(wanted), _BATCH):
            query = select(
                DagModel.dag_id, DagModel.is_paused, DagModel.is_stale, DagModel.has_import_errors
            ).where(DagModel.dag_id.in_(wanted[start : start + _BATCH]))
            for dag_id, is_paused, is_stale, broken in session.execute(query):
                found[dag_id] = DagStatus(
                    dag_id=dag_id,
                    is_paused=bool(is_paused),
                    is_stale=bool(is_stale),
                    has_import_errors=bool(broken),
                )
    return found


def paused_dags(dag_ids: Collection[str]) -> frozenset[str]:
    """Those of the DAGs that are paused; one that is missing is not."""
    return frozenset(dag_id for dag_id, status in dag_statuses(dag_ids).items() if status.is_paused)


def import_errors(limit: int = 10) -> list[tuple[str, str]]:
    """(file, last line of its error) of DAG files that do not import."""
    with create_session() as session:
        rows = session.execute(
            select(ParseImportError.filename, ParseImportError.stacktrace)
            .order_by(ParseImportError.filename)
            .limit(limit)
        )
        return [(name or "?", (trace or "").strip().rsplit("\n", 1)[-1]) for name, trace in rows]


def components() -> list[Component]:
    """What has registered with Airflow and not ended; the newest of each kind and host."""
    from airflow.jobs.job import Job  # noqa: PLC0415 - needs a moment to load

    with create_session() as session:
        jobs = session.scalars(
            select(Job).where(Job.state == "running").order_by(Job.latest_heartbeat.desc())
        ).all()
        newest: dict[tuple[str, str], Component] = {}
        for job in jobs:
            kind, host = job.job_type or "", job.hostname or ""
            newest.setdefault(
                (kind, host),
                Component(
                    kind=kind,
                    hostname=host,
                    is_alive=job.is_alive(),
                    last_heartbeat=job.latest_heartbeat,
                ),
            )
    return list(newest.values())


def count_triggers() -> int:
    """Triggers that wait in any triggerer, whoever deferred."""
    with create_session() as session:
        return int(session.scalar(select(func.count()).select_from(Trigger)) or 0)


def count_running_runs() -> int:
    """DAG runs in the state RUNNING, Relay's and all others."""
    from airflow.models.dagrun import DagRun  # noqa: PLC0415 - needs a moment to load
    from airflow.utils.state import DagRunState  # noqa: PLC0415 - see above

    with create_session() as session:
        query = select(func.count()).select_from(DagRun).where(DagRun.state == DagRunState.RUNNING)
        return int(session.scalar(query) or 0)


def trigger_dag_run(
    *, dag_id: str, run_id: str, conf: dict[str, Any], note: str | None = None, by: str | None = None
) -> bool:
    """Start one DAG run by the function that Airflow's own API serves tasks with, with no logical date.

    :return: false when a run with this very run id exists already.
    :raises TargetDagError: the DAG is missing or has import errors; names it.
    """
    from airflow.api.common.trigger_dag import trigger_dag  # noqa: PLC0415 - needs a moment to load
    from airflow.exceptions import DagNotFound, DagRunAlreadyExists  # noqa: PLC0415 - see above
    from airflow.utils.types import DagRunTriggeredByType, DagRunType  # noqa: PLC0415 - see above

    status = dag_statuses([dag_id]).get(dag_id)
    if status is None or status.is_stale:
        raise TargetDagError(f"DAG {dag_id!r} does not exist. Deploy it.", is_refused=True)
    if status.has_import_errors:
        raise TargetDagError(f"DAG {dag_id!r} has import errors. Fix its file.", is_refused=True)
    try:
        trigger_dag(
            dag_id=dag_id,
            run_id=run_id,
            run_type=DagRunType.OPERATOR_TRIGGERED,
            conf=conf,
            logical_date=None,
            replace_microseconds=False,
            triggered_by=DagRunTriggeredByType.CLI,
            triggering_user_name=by,
            note=note,
        )
    except DagRunAlreadyExists:
        return False
    except DagNotFound as error:
        raise TargetDagError(f"DAG {dag_id!r} does not exist. Deploy it.", is_refused=True) from error
    return True

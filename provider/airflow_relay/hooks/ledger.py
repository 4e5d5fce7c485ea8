"""Which ledger this process uses: one resolver for tasks, callbacks, triggerer, CLI and API server."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from airflow.sdk import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRescheduleException
from sqlalchemy.engine import URL

from airflow_relay.clock import airflow_time, utcnow
from airflow_relay.compat import in_task_process
from airflow_relay.hooks.objects import airflow_home, results_folder
from airflow_relay.ledger.errors import LedgerNotReadyError, LedgerUnreachableError
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)

LEDGER_CONN_ID: Final = "relay_ledger"
ASK_AGAIN_AFTER: Final = timedelta(seconds=30)
"""How long a task waits before it asks again a ledger that did not answer."""
_DRIVERS: Final = {
    "postgres": "postgresql+psycopg2",
    "postgresql": "postgresql+psycopg2",
    "relay_ledger": "postgresql+psycopg2",
}


class LedgerHook(BaseHook):
    """The ledger behind the connection ``relay_ledger``, or the embedded SQLite one without it."""

    conn_name_attr = "ledger_conn_id"
    default_conn_name = LEDGER_CONN_ID
    conn_type = "relay_ledger"
    hook_name = "Relay ledger (PostgreSQL)"

    def get_conn(self) -> Ledger:
        """The ledger, its schema checked."""
        return get_ledger()

    def test_connection(self) -> tuple[bool, str]:
        """For the button in Airflow's connection form."""
        try:
            return True, f"Ledger {get_ledger().ledger_id}"
        except LedgerNotReadyError as error:
            return False, str(error)


def get_ledger() -> Ledger:
    """The ledger of the deployment.

    :raises LedgerNotReadyError: none can be used here; the text says the cure.
    """
    return _ledger_for(os.getpid())


@lru_cache(maxsize=1)
def _ledger_for(pid: int) -> Ledger:  # noqa: ARG001 - a forked process makes its own
    connection = _find_connection()
    objects = results_folder()
    if connection is not None:
        return Ledger(_url_of(connection), objects)
    ledger = Ledger(embedded_url(), objects)
    try:
        ledger.ledger_id  # noqa: B018 - reading it checks the schema
    except LedgerNotReadyError:
        ledger.init()
    return ledger


def wait_for_ledger(error: LedgerUnreachableError) -> Exception:
    """What a task raises that has not begun its work: it waits for the ledger, no worker and no try used."""
    log.warning("%s (the task waits for it)", error)
    wait: Exception = AirflowRescheduleException(  # type: ignore[no-untyped-call]
        airflow_time(utcnow()) + ASK_AGAIN_AFTER
    )
    return wait


def forget_ledger() -> None:
    """Resolve anew at the next call (tests, and a changed connection)."""
    _ledger_for.cache_clear()


def ledger_source() -> str:
    """Where the ledger comes from, for the first line of every command; no secret in it."""
    if _find_connection() is not None:
        return f"connection {LEDGER_CONN_ID!r}"
    return f"embedded SQLite (no connection {LEDGER_CONN_ID!r})"


def embedded_url() -> str:
    """SQLite beside Airflow, which only a single machine can share.

    :raises LedgerNotReadyError: the executor runs tasks on other machines.
    """
    executor = conf.get("core", "executor", fallback="LocalExecutor")
    if not all(_is_local(name) for name in executor.split(",")):
        raise LedgerNotReadyError(
            f"The executor is {executor}, so tasks run on other machines, which cannot share the embedded "
            f"SQLite ledger. Add a connection {LEDGER_CONN_ID!r} to a PostgreSQL database "
            "(AIRFLOW_CONN_RELAY_LEDGER=postgresql://…) and run `airflow relay init`."
        )
    return f"sqlite:///{Path(airflow_home(), 'relay', 'ledger.db').absolute()}"


def _is_local(executor: str) -> bool:
    name = executor.strip().split(":")[-1].rsplit(".", 1)[-1]
    return name == "LocalExecutor"


def _find_connection() -> Any | None:
    """The connection, or ``None``. Outside a task only the ORM's look-up sees those in Airflow's database."""
    if in_task_process():
        try:
            return BaseHook.get_connection(LEDGER_CONN_ID)
        except AirflowNotFoundException:
            return None
    from airflow.models import Connection  # noqa: PLC0415 - forbidden in tasks

    try:
        return Connection.get_connection_from_secrets(LEDGER_CONN_ID)  # noqa: AIR311 - see above
    except AirflowNotFoundException:
        return None


def _url_of(connection: Any) -> str:
    """The connection as an SQLAlchemy URL.

    :raises LedgerNotReadyError: its type is not one of a database that can hold a ledger.
    """
    kind = (connection.conn_type or "").replace("-", "_")
    if kind == "sqlite":
        return f"sqlite:///{connection.schema or connection.host}"
    driver = _DRIVERS.get(kind.split("+", maxsplit=1)[0])
    if driver is None:
        raise LedgerNotReadyError(
            f"Connection {LEDGER_CONN_ID!r} has the type {connection.conn_type!r}: "
            "the ledger runs on PostgreSQL (or SQLite on a single machine)."
        )
    url = URL.create(
        driver,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host or None,
        port=connection.port,
        database=connection.schema or None,
        query={k: str(v) for k, v in connection.extra_dejson.items() if isinstance(v, str | int)},
    )
    return url.render_as_string(hide_password=False)

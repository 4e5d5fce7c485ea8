"""``relay__watchdog``: watches sweep and tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from airflow.sdk import DAG, BaseNotifier
from airflow.timetables.trigger import DeltaTriggerTimetable

from airflow_relay.dags.stage import START_DATE
from airflow_relay.operators.watchdog import Watchdog

WATCHDOG_DAG_ID: Final = "relay__watchdog"

PING_CONN_ID: Final = "relay_dead_man"
"""An HTTP connection to a service that misses the ping when Airflow as a whole is down."""


def watchdog_dag(notifier: BaseNotifier | None = None, ping_conn_id: str | None = PING_CONN_ID) -> DAG:
    """Look every 15 minutes.

    :param notifier: any Airflow notifier for alerts; ``None`` for the connection ``relay_alerts``.
    :param ping_conn_id: HTTP connection to ping while all is well; one that does not exist is not pinged.
    """
    with DAG(
        WATCHDOG_DAG_ID,
        schedule=DeltaTriggerTimetable(timedelta(minutes=15)),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"relay"},
        doc_md=(
            "Alerts when the recovery sweep or the tick is too old, or when the ledger cannot be read, and "
            "fails then. It runs in the same Airflow as what it watches: let the system's own cron call "
            "`airflow relay check-recovery --max-age 3h`, or an outside service expect its ping, as well."
        ),
    ) as dag:
        Watchdog(task_id="watch", notifier=notifier, ping_conn_id=ping_conn_id, retries=0)
    return dag

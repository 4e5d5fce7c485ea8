"""The operations DAGs: what keeps pipelines moving beside their stages.

There is no timer DAG: an item whose ``not_before`` is in the future is granted by the first tick after it, at
most five minutes late, and a pending timer run could be lost with its DAG where a row in the ledger cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from airflow.sdk import DAG, BaseNotifier, get_parsing_context
from airflow.timetables.trigger import DeltaTriggerTimetable

from airflow_relay.dags.admin import ADMIN_DAG_ID, admin_dag
from airflow_relay.dags.recovery import RECOVERY_DAG_ID, recovery_dag
from airflow_relay.dags.stage import START_DATE
from airflow_relay.dags.watchdog import PING_CONN_ID, WATCHDOG_DAG_ID, watchdog_dag
from airflow_relay.operators.letters import DEAD_LETTER_DAG_ID
from airflow_relay.operators.tick import Tick

DISPATCH_DAG_ID: Final = "relay__dispatch"


def dispatch_dag(notifier: BaseNotifier | None = None, every: timedelta = timedelta(minutes=5)) -> DAG:
    """The tick.

    :param notifier: any Airflow notifier for alerts; ``None`` for the connection ``relay_alerts``.
    """
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
            "back grants behind a paused DAG, dispatches, puts dead letters as questions and sends alerts. "
            "Every other path is faster; this one is sure."
        ),
    ) as dag:
        Tick(
            task_id="tick",
            trigger_dag_id=DISPATCH_DAG_ID,
            notifier=notifier,
            retries=2,
            retry_delay=timedelta(seconds=10),
        )
    return dag


def operations_dags(
    *, notifier: BaseNotifier | None = None, ping_conn_id: str | None = PING_CONN_ID
) -> list[DAG]:
    """Every operations DAG; in a task process only the one that it runs.

    :param notifier: any Airflow notifier that is to take the alerts; its templates have ``relay_alert.text``.
        ``None``: a POST of ``{"text": …}`` to the HTTP connection ``relay_alerts``, if there is one.
    :param ping_conn_id: HTTP connection that the watchdog pings while all is well, if there is one.
    """
    makers: dict[str, Callable[[], DAG]] = {
        DISPATCH_DAG_ID: partial(dispatch_dag, notifier),
        RECOVERY_DAG_ID: partial(recovery_dag, notifier),
        DEAD_LETTER_DAG_ID: _dead_letter_dag,
        WATCHDOG_DAG_ID: partial(watchdog_dag, notifier, ping_conn_id),
        ADMIN_DAG_ID: admin_dag,
    }
    asked = get_parsing_context().dag_id
    return [make() for dag_id, make in makers.items() if asked in (None, dag_id)]


def _dead_letter_dag() -> DAG:
    # The human-in-the-loop operator costs an import that tick and sweep need not pay.
    from airflow_relay.dags.dead_letter import dead_letter_dag  # noqa: PLC0415

    return dead_letter_dag()

"""``relay__recovery``: the sweep, one task a step, so that each can be read in Airflow's UI."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from airflow.sdk import DAG, BaseNotifier, Param, get_current_context, task
from airflow.timetables.trigger import DeltaTriggerTimetable

from airflow_relay.dags.stage import START_DATE
from airflow_relay.operators import sweep

RECOVERY_DAG_ID: Final = "relay__recovery"

EVERY: Final = timedelta(hours=2)

_DOCUMENTATION: Final = """\
The recovery sweep: finds items that nothing moves and lets them run again, under the rules of the Variable
`relay_rules`. Read a sweep from left to right: each task's return value has a `summary`.

It only grants again, through the same dispatcher as everything else; it never executes work. A run that is
alive in Airflow's eyes is left alone, however long it takes.

**dry_run** decides and tells, and changes nothing. **exclude** leaves items alone, by key.
"""


def recovery_dag(notifier: BaseNotifier | None = None) -> DAG:
    """The sweep, every 2 h.

    :param notifier: any Airflow notifier for alerts; ``None`` for the connection ``relay_alerts``.
    """
    with DAG(
        RECOVERY_DAG_ID,
        schedule=DeltaTriggerTimetable(EVERY),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags={"relay"},
        params={
            "dry_run": Param(False, type="boolean", description="Decide and tell, and change nothing."),
            "exclude": Param([], type="array", items={"type": "string"}, description="Item keys to leave."),
        },
        default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
        doc_md=_DOCUMENTATION,
    ) as dag:
        _wire(notifier)
    return dag


def _wire(notifier: BaseNotifier | None) -> None:
    @task
    def load_rules() -> dict[str, Any]:
        """The rules in force, checked."""
        return sweep.load_rules(get_current_context()["params"])

    @task
    def scan(rules: Any) -> dict[str, Any]:
        """How much is stale, and which runs hold slots."""
        return sweep.scan(rules)

    @task
    def reconcile(rules: Any, scanned: Any) -> dict[str, Any]:
        """What Airflow says of those runs; the ones that died without telling are recorded."""
        return sweep.reconcile_runs(rules, scanned, get_current_context()["ti"])

    @task
    def decide(rules: Any, reconciled: Any) -> dict[str, Any]:
        """The rules applied to each stale item."""
        return sweep.decide(rules, reconciled)

    @task
    def refire(rules: Any, decided: Any) -> dict[str, Any]:
        """Charge an attempt, grant, trigger."""
        return sweep.refire(rules, decided)

    @task
    def escalate(rules: Any, decided: Any) -> dict[str, Any]:
        """Dead letters, and alerts to people."""
        return sweep.escalate(rules, decided, get_current_context(), notifier)

    @task
    def heartbeat(rules: Any, *parts: Any) -> dict[str, Any]:
        """The whole sweep in a few sentences, and the sign that it came to its end."""
        return sweep.heartbeat(rules, parts)

    rules = load_rules()
    scanned = scan(rules)
    reconciled = reconcile(rules, scanned)
    decided = decide(rules, reconciled)
    refired = refire(rules, decided)
    escalated = escalate(rules, decided)
    refired >> escalated
    heartbeat(rules, scanned, reconciled, decided, refired, escalated)

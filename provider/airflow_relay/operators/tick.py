"""The tick: the backstop behind every faster path. It sends, reconciles, takes back, and dispatches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from airflow.sdk import BaseNotifier

from airflow_relay import metrics
from airflow_relay.clock import utcnow
from airflow_relay.compat import TargetDagError
from airflow_relay.core.breaker import BreakerGate
from airflow_relay.core.item import Run
from airflow_relay.core.watch import TICK
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import read_conditions, renew_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import breakers, governing, runs
from airflow_relay.ledger.store import Ledger
from airflow_relay.notifications.alerts import send_alerts
from airflow_relay.operators import letters, reconcile
from airflow_relay.operators.agent_orphans import cancel_orphans
from airflow_relay.operators.trigger import RelayTrigger

log: Final = logging.getLogger(__name__)


class Tick(RelayTrigger):
    """One round of ``relay__dispatch``. Idempotent, and harmless beside another one.

    :param notifier: any Airflow notifier for alerts; ``None`` for the connection ``relay_alerts``.
    """

    def __init__(self, *, notifier: BaseNotifier | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.notifier = notifier

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Do one round; returns its figures.

        :raises TargetDagError: a granted DAG is missing or broken; everything else was done before.
        """
        ledger, now = get_ledger(), utcnow()
        with ledger.read() as tx:
            held = runs.open_runs(tx)
        conditions = renew_conditions(ledger, now, targets={r.dag_id for r in held})
        examined = reconcile.examine(held, paused_dags=conditions.paused_dags)
        grants = reconcile.record_ends(ledger, examined, conditions=conditions, ti=context["ti"])
        grants += reconcile.end_overdue(ledger, conditions=conditions, now=now)
        withdrawn = reconcile.withdraw_paused(ledger, examined, now=now)
        grants += ledger.dispatch(conditions, utcnow())
        crash_point(CrashPoint.TICK_GRANTED)
        with ledger.read() as tx:
            blocked = sum(gate is not BreakerGate.CLOSED for gate in breakers.gates(tx, now).values())
        metrics.tick(open_runs=len(held), breakers_open=blocked)
        with ledger.write() as tx:
            governing.beat(tx, TICK, utcnow(), {"granted": len(grants), "open": len(held)})
        try:
            sent = self._send_all(ledger, grants)
        finally:
            # A broken DAG fails the tick; people still hear of it, and of everything else.
            told = self._tell_people(ledger, context)
        figures = {
            "open": len(held),
            "withdrawn": withdrawn,
            "granted": len(grants),
            "sent": len(sent),
            **told,
        }
        log.info("Tick: %s", figures)
        return figures

    def _send_all(self, ledger: Ledger, grants: list[Run]) -> list[Run]:
        try:
            return self.send(ledger, grants)
        except TargetDagError:
            # What it has taken back leaves room for others.
            self.send(ledger, ledger.dispatch(read_conditions(ledger, utcnow()), utcnow()))
            raise

    def _tell_people(self, ledger: Ledger, context: Mapping[str, Any]) -> dict[str, int]:
        asked = letters.tend(ledger)
        cancelled = cancel_orphans(ledger)
        sent = send_alerts(ledger, context, self.notifier)
        return {**asked, "jobs_cancelled": cancelled, "alerts": sent.taken, "alerts_refused": sent.refused}

"""The tick: the backstop behind every faster path. It sends, reconciles, takes back, and dispatches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from airflow_relay.clock import utcnow
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import governing, runs
from airflow_relay.operators import reconcile
from airflow_relay.operators.trigger import RelayTrigger

log: Final = logging.getLogger(__name__)

TICK: Final = "tick"
"""Name of the tick's heartbeat."""


class Tick(RelayTrigger):
    """One round of ``relay__dispatch``. Idempotent, and harmless beside another one."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Do one round; returns its figures.

        :raises TargetDagError: a granted DAG is missing or broken; everything else was done before.
        """
        ledger, now = get_ledger(), utcnow()
        with ledger.read() as tx:
            held = runs.open_runs(tx)
        conditions = read_conditions(ledger, now, targets={r.dag_id for r in held})
        examined = reconcile.examine(held, paused_dags=conditions.paused_dags, now=now)
        grants = reconcile.record_ends(ledger, examined, conditions=conditions, ti=context["ti"])
        grants += reconcile.end_overdue(ledger, conditions=conditions, now=now)
        withdrawn = reconcile.withdraw_paused(ledger, examined, now=now)
        grants += ledger.dispatch(conditions, utcnow())
        crash_point(CrashPoint.TICK_GRANTED)
        with ledger.write() as tx:
            governing.beat(tx, TICK, utcnow(), {"granted": len(grants), "open": len(held)})
        sent = self.send(ledger, context, grants)
        figures = {"open": len(held), "withdrawn": withdrawn, "granted": len(grants), "sent": len(sent)}
        log.info("Tick: %s", figures)
        return figures

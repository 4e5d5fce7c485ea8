"""What a dispatch decision needs to know from Airflow, read before the ledger's transaction begins."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from airflow.sdk import Variable

from airflow_relay import compat
from airflow_relay.core.limits import HOLD_VARIABLE, LIMITS_VARIABLE, over_budget, parse_holds, parse_limits
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import dispatching, governing
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)


def read_conditions(ledger: Ledger, now: datetime, *, targets: Iterable[str] = ()) -> Conditions:
    """Limits, holds, budgets and pause states. Invalid entries are logged by name, the valid ones are used.

    :param targets: DAGs that the coming transaction may make ready, beside those that have ready items.
    """
    limits, problems = parse_limits(Variable.get(LIMITS_VARIABLE, default=None))
    holds, more = parse_holds(Variable.get(HOLD_VARIABLE, default=None), now)
    for problem in (*problems, *more):
        log.warning("%s", problem)
    with ledger.read() as tx:
        dags = dispatching.ready_dags(tx) | set(targets)
        states = governing.adaptive_states(tx) if limits.adaptive else {}
        used = governing.tokens_today(tx, limits.budgets, now) if limits.budgets else {}
        set_by_hand = governing.holds(tx, now)
    return Conditions(
        limits=limits.effective(states),
        holds={scope: hold.reason for scope, hold in {**holds, **set_by_hand}.items()},
        paused_dags=frozenset(dag for dag in sorted(dags) if compat.is_dag_paused(dag)),
        over_budget=over_budget(limits.budgets, used),
    )

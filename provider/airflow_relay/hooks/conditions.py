"""What a dispatch decision needs to know from Airflow, read before the ledger's transaction begins."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from airflow.sdk import Variable

from airflow_relay import compat
from airflow_relay.core.limits import (
    HOLD_VARIABLE,
    LIMITS_VARIABLE,
    Adaptive,
    over_budget,
    parse_holds,
    parse_limits,
)
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import governing, ready
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)


def read_conditions(ledger: Ledger, now: datetime, *, targets: Iterable[str] = ()) -> Conditions:
    """Limits, holds, budgets and pause states. Invalid entries are logged by name, the valid ones are used.

    :param targets: DAGs that the coming transaction may make ready, beside those that have ready items.
    """
    limits, problems = parse_limits(_variable(LIMITS_VARIABLE))
    holds, more = parse_holds(_variable(HOLD_VARIABLE), now)
    for problem in (*problems, *more):
        log.warning("%s", problem)
    with ledger.read() as tx:
        dags = ready.dags(tx) | set(targets)
        states = governing.adaptive_states(tx) if limits.adaptive else {}
        used = governing.tokens_today(tx, limits.budgets, now) if limits.budgets else {}
        set_by_hand = governing.holds(tx, now)
    return Conditions(
        limits=limits.effective(states),
        adaptive=limits.adaptive,
        holds={scope: hold.reason for scope, hold in {**holds, **set_by_hand}.items()},
        paused_dags=_paused(dags),
        over_budget=over_budget(limits.budgets, used),
    )


def adaptive_rules() -> Mapping[str, Adaptive]:
    """The adaptive keys of ``relay_limits`` alone: one call, for the place where an error is recorded."""
    limits, _ = parse_limits(_variable(LIMITS_VARIABLE))
    return limits.adaptive


def _variable(name: str) -> str | None:
    """A Variable's text: by the supervisor in a task, from Airflow's database in CLI and API server."""
    if compat.in_task_process():
        value: str | None = Variable.get(name, default=None)
        return value
    from airflow_relay import metadata  # noqa: PLC0415 - Airflow's models are forbidden in tasks

    return metadata.variable(name)


def _paused(dags: Collection[str]) -> frozenset[str]:
    if compat.in_task_process():
        return frozenset(dag for dag in sorted(dags) if compat.is_dag_paused(dag))
    from airflow_relay import metadata  # noqa: PLC0415 - see above

    return metadata.paused_dags(dags)

"""The one place where the twin reads the ledger: what happened lately becomes a scenario."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from airflow_relay.cli.session import open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.ledger import declarations, history
from airflow_relay.simulation.history import Fit, HistoryError, fit

_LEAST_DAYS: Final = 1 / 24
"""Shorter histories are taken to span an hour, or a rate of arrivals would mean nothing."""


def fit_history(*, days: int, pipeline: str | None) -> Fit:
    """Fit a scenario to the last days of the deployment's ledger.

    :param pipeline: only this one.
    :raises HistoryError: nothing to fit to.
    :raises LedgerError: the ledger does not answer.
    """
    ledger, now = open_ledger(), utcnow()
    since = now - timedelta(days=days)
    conditions = read_conditions(ledger, now)
    with ledger.read() as tx:
        first = history.first_registration(tx)
        if first is None:
            raise HistoryError("The ledger has no items: there is nothing to fit to.")
        spanned = max((now - max(first, since)) / timedelta(days=1), _LEAST_DAYS)
        return fit(
            declarations.load_all(tx),
            history.ended_runs(tx, since=since),
            history.registrations(tx, since=since),
            days=spanned,
            limits=conditions.limits,
            only=pipeline,
        )

"""What a dispatch decision needs to know from Airflow, read before the ledger's transaction begins."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
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
from airflow_relay.ledger import governing, observations, ready
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.observations import Observation
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)


def read_conditions(ledger: Ledger, now: datetime, *, targets: Iterable[str] = ()) -> Conditions:
    """Limits, holds, budgets and pause states, as Airflow has them now.

    Invalid entries are logged by name, the valid ones are used.

    :param targets: DAGs that the coming transaction may make ready, beside those that have ready items.
    """
    with ledger.read() as tx:
        dags = ready.dags(tx) | set(targets)
    seen = _ask(dags, now)
    with ledger.read() as tx:
        return _conditions(tx, seen, dags, now)


def renew_conditions(ledger: Ledger, now: datetime, *, targets: Iterable[str] = ()) -> Conditions:
    """The same, kept for hand-offs, with the pause states of all DAGs that they have asked about."""
    with ledger.read() as tx:
        dags = ready.dags(tx) | set(targets)
        before = observations.load(tx)
    seen = _ask(dags | (before.paused.keys() if before else set()), now)
    with ledger.dispatcher() as tx:
        return _conditions(tx, observations.keep(tx, seen, now), dags, now)


KNOWN_FOR: Final = timedelta(seconds=5)
"""A hold set by command counts at once, so what was read before a long upload is not used."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the ledger knows of the conditions without asking Airflow.

    :param at: when it was read.
    :param conditions: ``None`` while Airflow has to be asked.
    """

    at: datetime
    dags: Collection[str]
    seen: Observation | None
    conditions: Conditions | None


def known_conditions(tx: Tx, now: datetime, *, targets: Iterable[str] = ()) -> Known:
    """The first half of :func:`recent_conditions`, for a transaction that reads other things as well."""
    dags = ready.dags(tx) | set(targets)
    seen = observations.load(tx)
    enough = seen is not None and seen.is_recent(now) and dags <= seen.paused.keys()
    conditions = _conditions(tx, seen, dags, now) if seen is not None and enough else None
    return Known(at=now, dags=dags, seen=seen, conditions=conditions)


def recent_conditions(
    ledger: Ledger, now: datetime, *, targets: Iterable[str] = (), known: Known | None = None
) -> Conditions:
    """The same, not older than a minute; what nobody has asked about in that time is asked for and kept.

    :param known: read just now; when it has become too old it is read again.
    """
    if known is None or now - known.at > KNOWN_FOR:
        with ledger.read() as tx:
            known = known_conditions(tx, now, targets=targets)
    seen, dags = known.seen, known.dags
    if seen is not None and seen.is_recent(now):
        if known.conditions is not None:
            return known.conditions
        seen = replace(seen, paused={**seen.paused, **_pause_states(dags - seen.paused.keys())})
    else:
        seen = _ask(dags, now)
    with ledger.dispatcher() as tx:
        return _conditions(tx, observations.keep(tx, seen, now), dags, now)


def _ask(dags: Collection[str], now: datetime) -> Observation:
    return Observation(
        at=now,
        limits=_variable(LIMITS_VARIABLE),
        holds=_variable(HOLD_VARIABLE),
        paused=_pause_states(dags),
    )


def _conditions(tx: Tx, seen: Observation, dags: Collection[str], now: datetime) -> Conditions:
    limits, problems = parse_limits(seen.limits)
    holds, more = parse_holds(seen.holds, now)
    for problem in (*problems, *more):
        log.warning("%s", problem)
    states = governing.adaptive_states(tx) if limits.adaptive else {}
    used = governing.tokens_today(tx, limits.budgets, now) if limits.budgets else {}
    return Conditions(
        limits=limits.effective(states),
        adaptive=limits.adaptive,
        holds={scope: hold.reason for scope, hold in {**holds, **governing.holds(tx, now)}.items()},
        paused_dags=seen.paused_among(dags),
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


def _pause_states(dags: Collection[str]) -> dict[str, bool]:
    if compat.in_task_process():
        return {dag: compat.is_dag_paused(dag) for dag in sorted(dags)}
    from airflow_relay import metadata  # noqa: PLC0415 - see above

    paused = metadata.paused_dags(dags)
    return {dag: dag in paused for dag in dags}

"""What governs dispatch beside the items: holds, adaptive limits, token budgets, heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from airflow_relay.core.limits import (
    LIMITS_VARIABLE,
    Adaptive,
    AdaptiveState,
    Hold,
    Limits,
    Outcome,
    adapt,
    day_end,
    day_start,
    under,
)
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import alerts, declarations
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import adaptive_limits, heartbeats, jobs
from airflow_relay.ledger.schema import holds as hold_table
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.types import Instant


def holds(tx: Tx, now: datetime) -> dict[str, Hold]:
    """Open holds set by command or form, and those of DAGs that cannot be triggered: scope → hold."""
    rows = tx.conn.execute(_HOLDS, {"now": now})
    return {r.scope: Hold(scope=r.scope, reason=r.reason, until=r.until) for r in rows}


_HOLDS: Final = select(hold_table).where(
    or_(hold_table.c.until.is_(None), hold_table.c.until > bindparam("now", type_=Instant))
)


def set_hold(tx: Tx, hold: Hold, *, by: str, now: datetime) -> None:
    """Hold a class or a pipeline; a second hold of one scope replaces the first."""
    release_hold(tx, hold.scope)
    tx.conn.execute(
        insert(hold_table).values(
            scope=hold.scope, reason=hold.reason, until=hold.until, set_at=now, set_by=by
        )
    )


def hold_dag(tx: Tx, dag_id: str, reason: str, now: datetime) -> None:
    """Grant nothing for a DAG that Airflow has refused to trigger, each time in a row for twice as long."""
    query = select(hold_table.c.set_at, hold_table.c.until).where(hold_table.c.scope == dag_id)
    before = tx.conn.execute(query).one_or_none()
    pause = SHORTEST_DAG_HOLD
    if before is not None and before.until is not None and now - before.until < LONGEST_DAG_HOLD * 2:
        pause = min(2 * (before.until - before.set_at), LONGEST_DAG_HOLD)
    set_hold(tx, Hold(scope=dag_id, reason=reason, until=now + pause), by="Relay", now=now)


SHORTEST_DAG_HOLD: Final = timedelta(seconds=30)
LONGEST_DAG_HOLD: Final = timedelta(minutes=5)
"""Between two attempts to trigger a DAG that is missing or broken."""


def release_hold(tx: Tx, scope: str) -> bool:
    """End a hold. Returns whether there was one."""
    return bool(tx.conn.execute(delete(hold_table).where(hold_table.c.scope == scope)).rowcount)


def adaptive_states(tx: Tx) -> dict[str, AdaptiveState]:
    """Adaptive capacity key → its state."""
    rows = tx.conn.execute(select(adaptive_limits.c.key, adaptive_limits.c.data))
    return {key: AdaptiveState.from_json(data) for key, data in rows}


def keep_adaptive_state(tx: Tx, key: str, state: AdaptiveState, now: datetime) -> None:
    row = {"data": state.to_json(), "updated_at": now}
    changed = tx.conn.execute(update(adaptive_limits).where(adaptive_limits.c.key == key).values(**row))
    if not changed.rowcount:
        tx.conn.execute(insert(adaptive_limits).values(key=key, **row))


def with_adaptive_limits(conditions: Conditions, states: Mapping[str, AdaptiveState]) -> Conditions:
    """The conditions with each adaptive limit as it stands in this transaction, not when they were read."""
    if not conditions.adaptive:
        return conditions
    now_at = Limits(adaptive=conditions.adaptive).effective(states)
    return replace(conditions, limits={**conditions.limits, **now_at})


def with_holds(tx: Tx, conditions: Conditions, now: datetime) -> Conditions:
    """The conditions with the ledger's holds as they stand in this transaction: one counts at once."""
    found = holds(tx, now)
    if found.keys() <= conditions.holds.keys():
        return conditions
    return replace(
        conditions, holds={**conditions.holds, **{scope: hold.reason for scope, hold in found.items()}}
    )


def adapt_limits(
    tx: Tx, rules: Mapping[str, Adaptive], keys: Iterable[str], outcome: Outcome, now: datetime
) -> list[str]:
    """Feed how a run or one of its jobs ended to the adaptive keys that it holds.

    The caller holds the dispatcher's lock. Returns each limit that has changed, in words.
    """
    adaptive = [key for key in keys if key in rules]
    states = adaptive_states(tx) if adaptive else {}
    changed = []
    for key in adaptive:
        before = states.get(key)
        after = adapt(rules[key], before, [outcome], now)
        if after != before:
            keep_adaptive_state(tx, key, after, now)
        if after.limit != under(rules[key], before).limit:
            changed.append(f"The limit of '{key}' adapts, {after.told}")
    return changed


@dataclass(frozen=True, kw_only=True)
class AdaptiveFigures:
    """An adaptive capacity key for people: where its limit stands, between which bounds, and why.

    :param changed_at: when an outcome last counted; ``None`` while it stands at its start.
    """

    key: str
    limit: int
    least: int
    most: int
    told: str
    changed_at: datetime | None


def adaptive_figures(tx: Tx, rules: Mapping[str, Adaptive]) -> list[AdaptiveFigures]:
    """Every adaptive key of ``relay_limits``, for ``airflow relay status`` and the page."""
    rows = tx.conn.execute(select(adaptive_limits.c.key, adaptive_limits.c.updated_at))
    times: dict[str, datetime] = {key: at for key, at in rows}  # noqa: C416 - rows are Row objects
    states = adaptive_states(tx)
    return [
        AdaptiveFigures(
            key=key,
            limit=under(rule, states.get(key)).limit,
            least=rule.min,
            most=rule.max,
            told=under(rule, states.get(key)).told,
            changed_at=times.get(key),
        )
        for key, rule in sorted(rules.items())
    ]


def tell_over_budget(tx: Tx, pipelines: Collection[str], now: datetime) -> None:
    """Raise one alert per pipeline and day that has used up its tokens. Under the dispatcher's lock."""
    declared = declarations.load_all(tx) if pipelines else {}
    for name in sorted(pipelines):
        zone = declared[name].timezone if name in declared else "UTC"
        day = now.astimezone(ZoneInfo(zone)).date().isoformat()
        dedup_key = f"budget:{name}:{day}"
        if alerts.was_raised(tx, dedup_key):
            continue
        used = tokens_today(tx, [name], now).get(name, 0)
        text = (
            f"Pipeline {name} has used up its token budget of {day} ({used:,} tokens): nothing of it is "
            f"granted until {day_end(zone, now):%Y-%m-%d %H:%M} UTC, or until 'budget.{name}' in the "
            f"Variable {LIMITS_VARIABLE} is raised."
        )
        alerts.raise_alert(tx, dedup_key, text, now)


def tokens_today(tx: Tx, pipelines: Collection[str], now: datetime) -> Mapping[str, int]:
    """Pipeline → tokens that jobs finished since midnight in the pipeline's timezone have used."""
    used: dict[str, int] = {}
    declared = declarations.load_all(tx)
    for name in pipelines:
        if name not in declared:
            continue
        total: Any = func.coalesce(func.sum(jobs.c.input_tokens), 0) + func.coalesce(
            func.sum(jobs.c.output_tokens), 0
        )
        query = (
            select(total)
            .select_from(jobs.join(item_table, item_table.c.id == jobs.c.item_id))
            .where(
                item_table.c.pipeline == name,
                jobs.c.finished_at >= day_start(declared[name].timezone, now),
            )
        )
        used[name] = int(tx.conn.execute(query).scalar_one())
    return used


def beat(tx: Tx, name: str, now: datetime, detail: Mapping[str, Any] | None = None) -> None:
    """A sweep or tick has run."""
    row = {"at": now, "detail": dict(detail or {})}
    changed = tx.conn.execute(update(heartbeats).where(heartbeats.c.name == name).values(**row))
    if not changed.rowcount:
        tx.conn.execute(insert(heartbeats).values(name=name, **row))


def last_beat(tx: Tx, name: str) -> datetime | None:
    """When the sweep or tick last ran to its end."""
    return tx.conn.execute(select(heartbeats.c.at).where(heartbeats.c.name == name)).scalar()

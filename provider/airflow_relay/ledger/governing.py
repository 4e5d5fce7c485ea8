"""What governs dispatch beside the items: holds, adaptive limits, token budgets, heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, or_, select, update

from airflow_relay.core.limits import AdaptiveState, Hold, day_start
from airflow_relay.ledger import declarations
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import adaptive_limits, heartbeats, jobs
from airflow_relay.ledger.schema import holds as hold_table
from airflow_relay.ledger.schema import items as item_table


def holds(tx: Tx, now: datetime) -> dict[str, Hold]:
    """Open holds that a person set by command or form: scope → hold."""
    query = select(hold_table).where(or_(hold_table.c.until.is_(None), hold_table.c.until > now))
    return {r.scope: Hold(scope=r.scope, reason=r.reason, until=r.until) for r in tx.conn.execute(query)}


def set_hold(tx: Tx, hold: Hold, *, by: str, now: datetime) -> None:
    """Hold a class or a pipeline; a second hold of one scope replaces the first."""
    release_hold(tx, hold.scope)
    tx.conn.execute(
        insert(hold_table).values(
            scope=hold.scope, reason=hold.reason, until=hold.until, set_at=now, set_by=by
        )
    )


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

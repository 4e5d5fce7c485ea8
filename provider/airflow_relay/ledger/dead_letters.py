"""Dead letters: items that automation has given up on, with their trail, until a person decides."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import insert, update

from airflow_relay.core.item import Item
from airflow_relay.core.states import EventKind
from airflow_relay.ledger import alerts, items
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import dead_letters
from airflow_relay.ledger.types import to_micros

_TRAIL_KINDS: Final = (
    EventKind.FAILED,
    EventKind.ERROR_RECORDED,
    EventKind.RECOVERED,
    EventKind.REDRIVEN,
    EventKind.DEAD_LETTERED,
)
_TRAIL_LENGTH: Final = 20


def enter(tx: Tx, item: Item, reason: str, now: datetime) -> None:
    """Write the letter of an item that has just become dead, and raise its one alert."""
    trail = [
        {"at": e.at.isoformat(), "what": e.kind.value, "text": e.text}
        for e in items.log_of(tx, item.id, kinds=_TRAIL_KINDS)[-_TRAIL_LENGTH:]
    ]
    tx.conn.execute(
        insert(dead_letters).values(
            item_id=item.id,
            pipeline=item.pipeline,
            stage=item.stage,
            epoch=item.epoch,
            at=now,
            error_class=item.error_class,
            reason=reason,
            trail=trail,
        )
    )
    alerts.raise_alert(
        tx,
        f"dead:{item.id}:{item.epoch}:{to_micros(now)}",
        f"Item '{item.key}' of {item.pipeline} is in the dead letters at {item.stage}: {reason}",
        now,
    )


def resolve(tx: Tx, item_id: int, *, resolution: str, by: str, now: datetime) -> bool:
    """Close the item's open letter. Returns whether there was one: twice is once."""
    done = tx.conn.execute(
        update(dead_letters)
        .where(dead_letters.c.item_id == item_id, dead_letters.c.resolved_at.is_(None))
        .values(resolved_at=now, resolution=resolution, resolved_by=by)
    )
    return bool(done.rowcount)

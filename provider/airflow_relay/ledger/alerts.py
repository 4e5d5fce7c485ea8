"""The alert outbox: an alert is raised once in a transaction and sent again until its channel takes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, Text, bindparam, cast, exists, func, insert, literal, or_, select, update

from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import alerts
from airflow_relay.ledger.types import Instant

CLAIM: Final = timedelta(minutes=2)
"""For so long an alert belongs to the sender that has claimed it; after this it counts as not sent."""

DEAD: Final = "dead"


@dataclass(frozen=True)
class Alert:
    """One message for people."""

    id: int
    dedup_key: str
    text: str
    raised_at: datetime
    attempts: int
    error: str | None

    @property
    def item_id(self) -> int | None:
        """The item that a dead letter's alert is about."""
        kind, _, rest = self.dedup_key.partition(":")
        return int(rest.split(":")[0]) if kind == DEAD else None


def dead_key(item_id: int, epoch: int, micros: int) -> str:
    """The alert of one entry into the dead letters."""
    return f"{DEAD}:{item_id}:{epoch}:{micros}"


_KEY: Final = bindparam("of_key", type_=alerts.c.dedup_key.type)
_RAISE: Final = insert(alerts).from_select(
    ["dedup_key", "text", "raised_at", "attempts"],
    select(
        cast(_KEY, alerts.c.dedup_key.type),
        cast(bindparam("text"), Text),
        cast(bindparam("at", type_=Instant), BigInteger),
        literal(0, literal_execute=True),
    ).where(~exists().where(alerts.c.dedup_key == _KEY)),
)


def raise_alert(tx: Tx, dedup_key: str, text: str, now: datetime) -> bool:
    """Put an alert into the outbox, once for ``dedup_key``. Returns whether it is new.

    Callers hold the dispatcher's lock, or the lock of the item that the key names.
    """
    row = {"of_key": dedup_key, "text": text, "at": now}
    return bool(tx.conn.execute(_RAISE, row).rowcount)


def was_raised(tx: Tx, dedup_key: str) -> bool:
    """Whether an alert of this key was ever put into the outbox."""
    return tx.conn.execute(select(alerts.c.id).where(alerts.c.dedup_key == dedup_key)).scalar() is not None


def unsent(tx: Tx, limit: int = 50) -> list[Alert]:
    """Alerts that no channel has taken yet: the least often tried first, so that one which its channel always
    refuses holds up no other; then the oldest.
    """
    rows = tx.conn.execute(
        select(alerts).where(alerts.c.sent_at.is_(None)).order_by(alerts.c.attempts, alerts.c.id).limit(limit)
    )
    return [Alert(r.id, r.dedup_key, r.text, r.raised_at, r.attempts, r.error) for r in rows]


def count_unsent(tx: Tx) -> tuple[int, str | None]:
    """How many alerts wait for their channel, and what the channel said last."""
    waiting = tx.conn.execute(
        select(func.count()).select_from(alerts).where(alerts.c.sent_at.is_(None))
    ).scalar_one()
    query = (
        select(alerts.c.error)
        .where(alerts.c.sent_at.is_(None), alerts.c.error.is_not(None))
        .order_by(alerts.c.claimed_at.desc())
        .limit(1)
    )
    return int(waiting), tx.conn.execute(query).scalar()


def claim(tx: Tx, alert: Alert, now: datetime) -> bool:
    """Become the one that sends it; false when another sender is at it, or it is sent."""
    free = or_(alerts.c.claimed_at.is_(None), alerts.c.claimed_at <= now - CLAIM)
    claimed = tx.conn.execute(
        update(alerts).where(alerts.c.id == alert.id, alerts.c.sent_at.is_(None), free).values(claimed_at=now)
    )
    return bool(claimed.rowcount)


def settle(tx: Tx, alert: Alert, *, now: datetime, error: str | None) -> None:
    """Record a try: taken, or refused with ``error``."""
    tx.conn.execute(
        update(alerts)
        .where(alerts.c.id == alert.id)
        .values(attempts=alerts.c.attempts + 1, error=error, sent_at=None if error else now)
    )

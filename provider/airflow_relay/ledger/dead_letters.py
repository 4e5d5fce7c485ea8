"""Dead letters: items that automation has given up on, with their trail, until a person decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, Select, func, insert, select, update

from airflow_relay.core.item import Item
from airflow_relay.core.states import EventKind
from airflow_relay.ledger import alerts, items
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import dead_letters
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.types import to_micros

MAX_OFFERED: Final = 20
"""Letters that are open questions in Airflow at once; each is a DAG run that its scheduler has to look at."""

_TRAIL_KINDS: Final = (
    EventKind.FAILED,
    EventKind.ERROR_RECORDED,
    EventKind.RECOVERED,
    EventKind.REDRIVEN,
    EventKind.DEAD_LETTERED,
)
_TRAIL_LENGTH: Final = 20
LOG_ENTRY: Final = "log"
"""The ``what`` of the trail's entry that holds the last log lines."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One entry of an item into the dead letters."""

    id: int
    item_id: int
    key: str
    pipeline: str
    stage: str
    epoch: int
    at: datetime
    error_class: str | None
    reason: str
    trail: Sequence[Mapping[str, Any]]
    """Oldest first: ``at`` (ISO), ``what`` (an event's kind, or ``log``), ``text``."""
    resolved_at: datetime | None = None
    resolution: str | None = None
    resolved_by: str | None = None
    offered_at: datetime | None = None
    """When it became a question in Airflow's Required Actions."""

    @property
    def is_open(self) -> bool:
        return self.resolved_at is None


@dataclass(frozen=True, kw_only=True)
class LetterFilter:
    """Which letters; a field that is ``None`` does not matter.

    :param since: entered at or after this instant.
    :param before: entered before this instant ("older than").
    :param keys: only these items.
    """

    pipeline: str | None = None
    stage: str | None = None
    error_class: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    keys: Collection[str] | None = None

    def apply(self, query: Select[Any]) -> Select[Any]:
        """The query narrowed down."""
        t = dead_letters.c
        for column, value in (
            (t.pipeline, self.pipeline),
            (t.stage, self.stage),
            (t.error_class, self.error_class),
        ):
            if value is not None:
                query = query.where(column == value)
        if self.since is not None:
            query = query.where(t.at >= self.since)
        if self.before is not None:
            query = query.where(t.at < self.before)
        if self.keys is not None:
            query = query.where(item_table.c.key.in_(list(self.keys)))
        return query


_ENTER: Final = insert(dead_letters).inline()


def enter(tx: Tx, item: Item, reason: str, now: datetime) -> None:
    """Write the letter of an item that has just become dead, and raise its one alert."""
    trail = [
        {"at": e.at.isoformat(), "what": e.kind.value, "text": e.text}
        for e in items.log_of(tx, item.id, kinds=_TRAIL_KINDS)[-_TRAIL_LENGTH:]
    ]
    row = {
        "item_id": item.id,
        "pipeline": item.pipeline,
        "stage": item.stage,
        "epoch": item.epoch,
        "at": now,
        "error_class": item.error_class,
        "reason": reason,
        "trail": trail,
    }
    tx.write(_ENTER, row)
    alerts.raise_alert(
        tx,
        alerts.dead_key(item.id, item.epoch, to_micros(now)),
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


def relocate(tx: Tx, item_id: int, stage: str) -> None:
    """The item of an open letter was moved to another stage."""
    tx.conn.execute(
        update(dead_letters)
        .where(dead_letters.c.item_id == item_id, dead_letters.c.resolved_at.is_(None))
        .values(stage=stage)
    )


def listing(
    tx: Tx, where: LetterFilter | None = None, *, resolved: bool = False, limit: int = 100, after: int = 0
) -> list[DeadLetter]:
    """Letters, the oldest first.

    :param where: which; ``None`` for all.
    :param resolved: those that a person has decided about, instead of the open ones.
    :param after: only letters with a greater id: how to page on.
    """
    query = _letters().order_by(dead_letters.c.id).limit(limit).where(dead_letters.c.id > after)
    decided = dead_letters.c.resolved_at
    query = query.where(decided.is_not(None) if resolved else decided.is_(None))
    return [_letter(r) for r in tx.conn.execute((where or LetterFilter()).apply(query))]


def counts(tx: Tx, where: LetterFilter | None = None) -> dict[tuple[str, str, str | None], int]:
    """(pipeline, stage, error class) → open letters."""
    t = dead_letters.c
    query = (
        select(t.pipeline, t.stage, t.error_class, func.count())
        .select_from(dead_letters.join(item_table, item_table.c.id == t.item_id))
        .where(t.resolved_at.is_(None))
        .group_by(t.pipeline, t.stage, t.error_class)
        .order_by(t.pipeline, t.stage, t.error_class)
    )
    rows = tx.conn.execute((where or LetterFilter()).apply(query))
    return {(pipeline, stage, error): count for pipeline, stage, error, count in rows}


def by_id(tx: Tx, letter: int) -> DeadLetter | None:
    """The letter, or ``None`` when retention has removed it."""
    row = tx.conn.execute(_letters().where(dead_letters.c.id == letter)).one_or_none()
    return None if row is None else _letter(row)


def of_item(tx: Tx, item_id: int) -> list[DeadLetter]:
    """Every letter that the item has ever had, oldest first."""
    query = _letters().where(dead_letters.c.item_id == item_id).order_by(dead_letters.c.id)
    return [_letter(r) for r in tx.conn.execute(query)]


def offer(tx: Tx, now: datetime, *, at_most: int = MAX_OFFERED) -> list[DeadLetter]:
    """The letters that are to be open questions now, oldest first; new ones fill the places of answered ones.

    All of them are returned and not just the new ones: asking for a question that exists already asks
    nothing, and one whose asker was killed is asked after all.
    """
    is_open = dead_letters.c.resolved_at.is_(None)
    asked = [
        _letter(r)
        for r in tx.conn.execute(
            _letters().where(is_open, dead_letters.c.offered_at.is_not(None)).order_by(dead_letters.c.id)
        )
    ]
    room = at_most - len(asked)
    if room <= 0:
        return asked
    fresh = [
        _letter(r)
        for r in tx.conn.execute(
            _letters()
            .where(is_open, dead_letters.c.offered_at.is_(None))
            .order_by(dead_letters.c.id)
            .limit(room)
        )
    ]
    if fresh:
        ids = [letter.id for letter in fresh]
        tx.conn.execute(update(dead_letters).where(dead_letters.c.id.in_(ids)).values(offered_at=now))
    return [*asked, *fresh]


def without_log(tx: Tx, since: datetime, limit: int = MAX_OFFERED) -> list[DeadLetter]:
    """Open letters, entered since then, whose last log lines nobody has looked for yet; newest first."""
    query = (
        _letters()
        .where(dead_letters.c.resolved_at.is_(None), dead_letters.c.at >= since)
        .order_by(dead_letters.c.id.desc())
        .limit(limit)
    )
    found = [_letter(r) for r in tx.conn.execute(query)]
    return [letter for letter in found if not any(e["what"] == LOG_ENTRY for e in letter.trail)]


def add_log(tx: Tx, letter: DeadLetter, lines: Sequence[str], now: datetime) -> None:
    """Keep the last log lines in the trail; none at all is kept as well, as looked for."""
    text = "\n".join(lines) if lines else "no log of its tasks is readable from here"
    entry = {"at": now.isoformat(), "what": LOG_ENTRY, "text": text}
    tx.conn.execute(
        update(dead_letters).where(dead_letters.c.id == letter.id).values(trail=[*letter.trail, entry])
    )


def _letters() -> Select[Any]:
    return select(dead_letters, item_table.c.key).join(item_table, item_table.c.id == dead_letters.c.item_id)


def _letter(row: Row[Any]) -> DeadLetter:
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public accessor
    return DeadLetter(**{name: values[name] for name in DeadLetter.__dataclass_fields__})

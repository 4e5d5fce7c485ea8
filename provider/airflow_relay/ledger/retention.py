"""Retention: long finished items go, and so do old lines of the logs of those that stay.

A finished item leaves its key behind, so that an intake that finds it again does not take it for new work.
The log of an item that stays begins with a snapshot in place of what was removed; replaying it gives its
row.

Each function does one batch in the caller's transaction, so that a pipeline goes on in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from sqlalchemy import Select, delete, exists, func, insert, select, update

from airflow_relay.core.item import Event, replay, snapshot_of
from airflow_relay.core.states import FINISHED, EventKind, RunState
from airflow_relay.ledger import codec, items
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.jobs import OPEN as OPEN_JOBS
from airflow_relay.ledger.schema import dead_letters, events, intakes, jobs, results, retired, runs
from airflow_relay.ledger.schema import items as item_table

BATCH: Final = 100
"""Items of one transaction: some ten milliseconds of a writer's time."""


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What one batch removed.

    :param last: the highest item id looked at: where the next batch begins; ``None`` when there is no more.
    :param refs: large values that nobody refers to any more; the caller deletes the objects afterwards.
    """

    items: int = 0
    events: int = 0
    snapshots: int = 0
    refs: tuple[str, ...] = ()
    last: int | None = None


def remove_finished(tx: Tx, before: datetime, now: datetime, *, after: int = 0) -> Cleaned:
    """Remove items that were finished before then, with all that belongs to them; their keys stay known."""
    ids = list(tx.conn.execute(_finished(before, after).with_for_update(skip_locked=True)).scalars())
    if not ids:
        return Cleaned()
    refs = [
        *tx.conn.execute(select(results.c.ref).where(results.c.item_id.in_(ids))).scalars(),
        *tx.conn.execute(select(jobs.c.result_ref).where(jobs.c.item_id.in_(ids))).scalars(),
    ]
    gone = _count_events(tx, ids)
    keys = tx.conn.execute(select(item_table.c.pipeline, item_table.c.key).where(item_table.c.id.in_(ids)))
    tombstones = [{"pipeline": pipeline, "key": key, "at": now} for pipeline, key in keys]
    tx.conn.execute(insert(retired), tombstones)
    for table in (events, results, jobs, dead_letters, runs):
        tx.conn.execute(delete(table).where(table.c.item_id.in_(ids)))
    tx.conn.execute(delete(item_table).where(item_table.c.id.in_(ids)))
    return Cleaned(
        items=len(ids), events=gone, refs=tuple(ref for ref in refs if ref is not None), last=ids[-1]
    )


def _finished(before: datetime, after: int) -> Select[Any]:
    """Whatever still runs for a finished item, a run or a paid job, is waited for."""
    t = item_table.c
    runs_on = exists().where(runs.c.item_id == t.id, runs.c.state == RunState.OPEN)
    works_on = exists().where(jobs.c.item_id == t.id, jobs.c.phase.in_([p.value for p in OPEN_JOBS]))
    return (
        select(t.id)
        .where(t.state.in_(list(FINISHED)), t.last_activity_at < before, t.id > after, ~runs_on, ~works_on)
        .order_by(t.id)
        .limit(BATCH)
    )


def count_finished(tx: Tx, before: datetime) -> int:
    """How many items :func:`remove_finished` would remove in all."""
    query = _finished(before, 0).order_by(None).limit(None)
    return int(tx.conn.execute(select(func.count()).select_from(query.subquery())).scalar_one())


def shorten_logs(tx: Tx, before: datetime, *, after: int = 0) -> Cleaned:
    """Put a snapshot in place of the lines before then, for items that stay."""
    t = events.c
    query = (
        select(t.item_id)
        .where(t.at < before, t.item_id > after)
        .group_by(t.item_id)
        .having(func.count() > 1)
        .order_by(t.item_id)
        .limit(BATCH)
    )
    ids = list(tx.conn.execute(query).scalars())
    if not ids:
        return Cleaned()
    removed = [_shorten(tx, item_id, before) for item_id in ids]
    return Cleaned(events=sum(removed), snapshots=sum(count > 0 for count in removed), last=ids[-1])


def _shorten(tx: Tx, item_id: int, before: datetime) -> int:
    """The newest of the old lines becomes the snapshot, so that it keeps its place in the order."""
    items.locked(tx, item_id)
    old = list(takewhile(lambda event: event.at < before, items.log_of(tx, item_id)))
    if len(old) < 2:
        return 0
    *gone, last = old
    then = replay(item_id, old)
    tx.conn.execute(delete(events).where(events.c.item_id == item_id, events.c.id < last.id))
    tx.conn.execute(
        update(events)
        .where(events.c.id == last.id)
        .values(
            kind=EventKind.SNAPSHOT,
            text=_snapshot_text(gone, last),
            set=codec.encode_fields(snapshot_of(then)),
            detail={"removed": len(gone), **last.detail},
        )
    )
    return len(gone)


def _snapshot_text(gone: Sequence[Event], last: Event) -> str:
    told = last.text if last.kind is not EventKind.SNAPSHOT else "an earlier snapshot"
    return f"Snapshot: {len(gone)} older lines were removed. The last one: {told}"


def remove_intakes(tx: Tx, before: datetime) -> int:
    """Remove the counts of intakes before then."""
    return int(tx.conn.execute(delete(intakes).where(intakes.c.at < before)).rowcount)


def retired_keys(tx: Tx, pipeline: str, keys: Collection[str]) -> set[str]:
    """Those keys whose items were finished and removed."""
    wanted = list(keys)
    found: set[str] = set()
    for start in range(0, len(wanted), 500):
        query = select(retired.c.key).where(
            retired.c.pipeline == pipeline, retired.c.key.in_(wanted[start : start + 500])
        )
        found.update(tx.conn.execute(query).scalars())
    return found


def take_back(tx: Tx, pipeline: str, key: str) -> None:
    """A person wants the item again: its key counts as new."""
    tx.conn.execute(delete(retired).where(retired.c.pipeline == pipeline, retired.c.key == key))


def forget_keys(tx: Tx, before: datetime, *, pipeline: str | None = None) -> int:
    """Forget keys that were removed before then; an intake that finds one takes it for new work."""
    query = delete(retired).where(retired.c.at < before)
    if pipeline is not None:
        query = query.where(retired.c.pipeline == pipeline)
    return int(tx.conn.execute(query).rowcount)


def _count_events(tx: Tx, ids: Sequence[int]) -> int:
    query = select(func.count()).select_from(events).where(events.c.item_id.in_(ids))
    return int(tx.conn.execute(query).scalar_one())

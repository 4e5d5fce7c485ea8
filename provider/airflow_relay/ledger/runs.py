"""Run rows: one grant each. They hold the slots, and tell when the run was asked for, started and closed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, func, insert, select, update

from airflow_relay.core import naming, recovery
from airflow_relay.core.completion import StageShape
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.states import (
    AIRFLOW_RUNS_KEY,
    EventKind,
    ItemState,
    RunResult,
    RunState,
)
from airflow_relay.ledger import codec, declarations, items
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import breakers, runs, slots
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.types import Instant

RESEND_AFTER: Final = timedelta(seconds=60)
"""An unconfirmed grant is sent again by whoever comes by after this; sending twice starts one run."""


_INSERT: Final = insert(runs).returning(runs.c.id, runs.c.item_id)
_CHANGE: Final = update(runs).where(runs.c.id == bindparam("of_run"))
_CONFIRM: Final = (
    update(runs)
    .where(runs.c.id.in_(bindparam("ids", expanding=True)), runs.c.confirmed_at.is_(None))
    .values(confirmed_at=bindparam("now", type_=Instant))
)
_OF_EPOCH: Final = select(runs).where(
    runs.c.item_id == bindparam("of_item"), runs.c.epoch == bindparam("of_epoch")
)
_IS_UNCONFIRMED: Final = (
    runs.c.state == RunState.OPEN,
    runs.c.confirmed_at.is_(None),
    runs.c.sent_at <= bindparam("until", type_=Instant),
)
_UNCONFIRMED: Final = (
    select(runs).where(*_IS_UNCONFIRMED).order_by(runs.c.id).limit(100).with_for_update(skip_locked=True)
)
_ANY_UNCONFIRMED: Final = select(runs.c.id).where(*_IS_UNCONFIRMED).limit(1)
_TAKE_SLOTS: Final = insert(slots)
_FREE_SLOTS: Final = delete(slots).where(slots.c.run == bindparam("of_run"))
LOCK_WITH_ITEM: Final = (
    select(
        runs,
        *(c.label(f"item__{c.name}") for c in item_table.columns),
        select(breakers.c.data)
        .where(breakers.c.pipeline == runs.c.pipeline, breakers.c.stage == runs.c.stage)
        .correlate(runs)
        .scalar_subquery()
        .label("breaker"),
    )
    .join(item_table, item_table.c.id == runs.c.item_id)
    .where(runs.c.id == bindparam("of_run"))
    # In this order: the item first.
    .with_for_update(of=[item_table, runs])
)


def grant(tx: Tx, found: Sequence[Item], *, now: datetime) -> list[Run]:
    """Give items their right to run their stage: epoch, run row, slots and event, all or nothing.

    :return: the runs, in the order of the items.
    """
    if not found:
        return []
    charges = {item.id: _charge(tx, item, now) for item in found if item.recovering}
    found = [replace(item, **charges.get(item.id, {})) for item in found]
    rows = [_row(tx, item, now) for item in found]
    ids = {item: run for run, item in tx.conn.execute(_INSERT, rows)}
    granted = [Run(id=ids[row["item_id"]], **row) for row in rows]
    tx.write(
        _TAKE_SLOTS,
        [
            {"run": run.id, "key": key}
            for item, run in zip(found, granted, strict=True)
            for key in (AIRFLOW_RUNS_KEY, *item.keys)
        ],
    )
    for item, run in zip(found, granted, strict=True):
        attempt = f", recovery attempt {run.attempt} of its day" if item.id in charges else ""
        change = Change(
            kind=EventKind.GRANTED,
            at=now,
            text=f"Granted {item.stage} (grant {run.epoch}){attempt}",
            set={
                "state": ItemState.GRANTED,
                "epoch": run.epoch,
                "ready_since": None,
                "not_before": None,
                **charges.get(item.id, {}),
            },
            detail={"run_id": run.run_id, "dag_id": run.dag_id},
            run=run.id,
        )
        items.perform(tx, item, change)
    return granted


def _charge(tx: Tx, item: Item, now: datetime) -> dict[str, Any]:
    """The item's fields after the attempt that the sweep has made it ready for."""
    return recovery.charge(item, now=now, timezone=declarations.load(tx, item.pipeline).timezone)


def _row(tx: Tx, item: Item, now: datetime) -> dict[str, Any]:
    """The row of an item's next grant."""
    epoch = item.epoch + 1
    return {
        "item_id": item.id,
        "pipeline": item.pipeline,
        "stage": item.stage,
        "visit": item.visit,
        "epoch": epoch,
        "dag_id": item.dag_id,
        "run_id": naming.run_id(item.pipeline, item.stage, item.key, epoch),
        "ledger_id": tx.ledger_id,
        "state": RunState.OPEN,
        "klass": item.klass,
        "clear_number": 0,
        "attempt": item.attempts,
        "ready_since": item.ready_since,
        "granted_at": now,
        # The grant is sent right behind this transaction; until RESEND_AFTER nobody else tries.
        "sent_at": now,
    }


def take_slots(tx: Tx, run: int, keys: Sequence[str]) -> None:
    """One unit of each key, and one of ``airflow.runs``."""
    tx.write(_TAKE_SLOTS, [{"run": run, "key": k} for k in (AIRFLOW_RUNS_KEY, *keys)])


def free_slots(tx: Tx, run: int) -> None:
    tx.write(_FREE_SLOTS, {"of_run": run})


def usage(tx: Tx) -> dict[str, int]:
    """Capacity key → units held."""
    rows = tx.conn.execute(select(slots.c.key, func.count()).group_by(slots.c.key))
    return {key: count for key, count in rows}  # noqa: C416 - rows are Row objects


def keys_of(tx: Tx, run: int) -> list[str]:
    """The capacity keys of which a run holds a unit now, ``airflow.runs`` included."""
    return list(tx.conn.execute(select(slots.c.key).where(slots.c.run == run)).scalars())


def find(tx: Tx, dag_id: str, run_id: str) -> Run | None:
    """The run row of an Airflow run, or ``None`` when Relay did not grant it."""
    row = tx.conn.execute(select(runs).where(runs.c.dag_id == dag_id, runs.c.run_id == run_id)).one_or_none()
    return None if row is None else codec.run_from(row)


def by_id(tx: Tx, run: int) -> Run:
    return codec.run_from(tx.conn.execute(select(runs).where(runs.c.id == run)).one())


class Locked(NamedTuple):
    """A run and its item, locked. ``breaker`` is the data of its stage's breaker, which the dispatcher alone
    changes: it is the present one for whoever holds the dispatcher's lock.
    """

    item: Item
    run: Run
    breaker: Any


def lock_with_item(tx: Tx, run: int) -> Locked:
    """The run and its item, both safe from other writers: whoever changes a run locks its item first."""
    row = tx.conn.execute(LOCK_WITH_ITEM, {"of_run": run}).one()
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public accessor
    item = codec.item_from({c.name: values[f"item__{c.name}"] for c in item_table.columns})
    return Locked(item, codec.run_from(row), row.breaker)


def following(tx: Tx, run: Run) -> Run | None:
    """The next grant of the run's item."""
    row = tx.conn.execute(_OF_EPOCH, {"of_item": run.item_id, "of_epoch": run.epoch + 1}).one_or_none()
    return None if row is None else codec.run_from(row)


def newest(tx: Tx, item_id: int) -> Run | None:
    """The item's run with the highest epoch."""
    query = select(runs).where(runs.c.item_id == item_id).order_by(runs.c.epoch.desc()).limit(1)
    row = tx.conn.execute(query).one_or_none()
    return None if row is None else codec.run_from(row)


def of_item(tx: Tx, item_id: int) -> list[Run]:
    """All runs of an item, oldest first."""
    query = select(runs).where(runs.c.item_id == item_id).order_by(runs.c.id)
    return [codec.run_from(r) for r in tx.conn.execute(query)]


def open_runs(tx: Tx) -> list[Run]:
    """Runs that hold slots, oldest first."""
    query = select(runs).where(runs.c.state == RunState.OPEN).order_by(runs.c.granted_at)
    return [codec.run_from(r) for r in tx.conn.execute(query)]


def change(tx: Tx, run: int, **values: Any) -> None:
    tx.write(_CHANGE, {"of_run": run, **values})


def confirm(tx: Tx, run_ids: Collection[int], now: datetime) -> None:
    """Airflow has these runs."""
    if run_ids:
        tx.conn.execute(_CONFIRM, {"ids": list(run_ids), "now": now})


def claim_unconfirmed(tx: Tx, now: datetime, *, older_than: timedelta = RESEND_AFTER) -> list[Run]:
    """Grants whose sender seems lost. Marked as sent now, so that two senders rarely work on one."""
    found = [codec.run_from(r) for r in tx.conn.execute(_UNCONFIRMED, {"until": now - older_than})]
    if found:
        tx.conn.execute(update(runs).where(runs.c.id.in_([r.id for r in found])).values(sent_at=now))
    return found


def any_unconfirmed(tx: Tx, now: datetime) -> bool:
    """Whether :func:`claim_unconfirmed` would find one."""
    return tx.conn.execute(_ANY_UNCONFIRMED, {"until": now - RESEND_AFTER}).first() is not None


def start(tx: Tx, item: Item, run: Run, *, pipeline: Pipeline, shape: StageShape, now: datetime) -> None:
    """The run's first guarded task begins: the item runs, and the clock of the stage's timeout with it."""
    timeout = pipeline.stage(run.stage).timeout if pipeline.has_stage(run.stage) else None
    change(
        tx,
        run.id,
        started_at=now,
        shape=shape.to_json(),
        confirmed_at=run.confirmed_at or now,
        deadline=None if timeout is None else now + timeout,
    )
    waited = (now - run.granted_at).total_seconds()
    items.perform(
        tx,
        item,
        Change(
            kind=EventKind.STARTED,
            at=now,
            text=f"{run.stage} started, {waited:.1f} s after its grant",
            set={"state": ItemState.RUNNING},
            detail={"trigger_latency_s": round(waited, 3)},
            run=run.id,
        ),
    )


def close(tx: Tx, run: Run, *, result: RunResult, now: datetime, **values: Any) -> None:
    """End the grant and free its slots."""
    change(tx, run.id, state=RunState.CLOSED, result=result, closed_at=now, **values)
    free_slots(tx, run.id)


def supersede(tx: Tx, item_id: int, *, by: Run, now: datetime) -> list[Run]:
    """Take the right to move the item from every other open run of it; their slots are free."""
    query = select(runs).where(runs.c.item_id == item_id, runs.c.state == RunState.OPEN, runs.c.id != by.id)
    others = [codec.run_from(r) for r in tx.conn.execute(query)]
    for other in others:
        change(tx, other.id, state=RunState.SUPERSEDED, superseded_by=by.id, closed_at=now)
        free_slots(tx, other.id)
    return others

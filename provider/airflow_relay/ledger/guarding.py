"""The guard on the ledger: what the rule needs to know, and the reopening that it may decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, func, select

from airflow_relay.core import guard as rules
from airflow_relay.core.completion import StageShape
from airflow_relay.core.guard import GuardAction, GuardDecision
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, EventKind, ItemState, RunState
from airflow_relay.ledger import codec, dead_letters, items, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import events, meta
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import runs as run_table


@dataclass(frozen=True)
class Guarded:
    """The guard's answer with the rows it was given on. ``has_slots`` is false when a reopening waits."""

    decision: GuardDecision
    run: Run | None
    item: Item | None
    has_slots: bool = True


def look(tx: Tx, dag_id: str, run_id: str, *, locked: bool = False) -> tuple[Run | None, Item | None, str]:
    """Run, item and the ledger's identity by one statement: what every guarded task pays.

    :param locked: with item and run safe from other writers until the transaction ends.
    """
    statement = _LOOK_LOCKED if locked else _LOOK
    row = tx.conn.execute(statement, {"of_dag": dag_id, "of_run": run_id}).one_or_none()
    if row is None:
        return None, None, tx.ledger_id
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public accessor
    item = codec.item_from({c.name: values[f"item__{c.name}"] for c in item_table.columns})
    return codec.run_from(row), item, row.identity


# Building such a statement costs a task more than running it.
_LOOK: Final = (
    select(
        run_table,
        select(meta.c.value).where(meta.c.name == "ledger_id").scalar_subquery().label("identity"),
        *(c.label(f"item__{c.name}") for c in item_table.columns),
    )
    .join(item_table, item_table.c.id == run_table.c.item_id)
    .where(run_table.c.dag_id == bindparam("of_dag"), run_table.c.run_id == bindparam("of_run"))
)
# In this order: the item first.
_LOOK_LOCKED: Final = _LOOK.with_for_update(of=[item_table, run_table])


def decide(
    tx: Tx,
    *,
    dag_id: str,
    run_id: str,
    clear_number: int,
    is_entry_dag: bool,
    named_ledger: str | None,
    now: datetime,
    locked: bool = False,
) -> Guarded:
    """Ask the rule; nothing is written.

    :param locked: as in :func:`look`.
    """
    run, item, ledger_id = look(tx, dag_id, run_id, locked=locked)
    closed = run is not None and item is not None and run.state is not RunState.OPEN
    decision = rules.decide(
        run=run,
        item=item,
        clear_number=clear_number,
        current_run=runs.newest(tx, item.id) if closed and item is not None else None,
        recent_clears=_recent_rewinds(tx, item, now) if closed and item is not None else 0,
        ledger_id=ledger_id,
        now=now,
        is_entry_dag=is_entry_dag,
        named_ledger=named_ledger,
    )
    return Guarded(decision, run, item)


def _recent_rewinds(tx: Tx, item: Item, now: datetime) -> int:
    query = (
        select(func.count())
        .select_from(events.join(item_table, item_table.c.id == events.c.item_id))
        .where(
            events.c.at > now - rules.REWIND_BURST_WINDOW,
            events.c.kind == EventKind.REWOUND,
            item_table.c.pipeline == item.pipeline,
        )
    )
    return int(tx.conn.execute(query).scalar_one())


def perform(
    tx: Tx,
    guarded: Guarded,
    *,
    pipeline: Pipeline,
    shape: StageShape,
    clear_number: int,
    limits: Mapping[str, int],
    now: datetime,
) -> Guarded:
    """Carry out a decision, made in this transaction under the locks that it needs."""
    decision, run, item = guarded.decision, guarded.run, guarded.item
    if run is None or item is None:
        return guarded
    if decision.action in (GuardAction.REOPEN, GuardAction.REWIND):
        return _reopen(
            tx,
            guarded,
            run,
            item,
            pipeline=pipeline,
            shape=shape,
            clear_number=clear_number,
            limits=limits,
            now=now,
        )
    if decision.record_clear and clear_number > run.clear_number:
        runs.change(tx, run.id, clear_number=clear_number)
    if decision.action is GuardAction.GO_ON and run.started_at is None:
        runs.start(tx, item, run, pipeline=pipeline, shape=shape, now=now)
    return guarded


def _reopen(
    tx: Tx,
    guarded: Guarded,
    run: Run,
    item: Item,
    *,
    pipeline: Pipeline,
    shape: StageShape,
    clear_number: int,
    limits: Mapping[str, int],
    now: datetime,
) -> Guarded:
    rewind = guarded.decision.action is GuardAction.REWIND
    others = [r for r in runs.of_item(tx, item.id) if r.state is RunState.OPEN and r.id != run.id]
    keys = pipeline.keys(run.stage)
    freed = [k for r in others for k in _keys_of(pipeline, r)]
    if not has_free_slots(tx, keys, limits, freed):
        return Guarded(guarded.decision, run, item, has_slots=False)
    timeout = pipeline.stage(run.stage).timeout
    epoch = item.epoch + 1 if rewind else item.epoch
    runs.change(
        tx,
        run.id,
        state=RunState.OPEN,
        epoch=epoch,
        clear_number=clear_number,
        result=None,
        outcome=None,
        error_class=None,
        error_reason=None,
        closed_at=None,
        started_at=now,
        shape=shape.to_json(),
        deadline=None if timeout is None else now + timeout,
    )
    superseded = runs.supersede(tx, item.id, by=run, now=now)
    runs.take_slots(tx, run.id, keys)
    names = ", ".join(r.run_id for r in superseded)
    change = Change(
        kind=EventKind.REWOUND if rewind else EventKind.REOPENED,
        at=now,
        text=guarded.decision.reason + (f" Superseded: {names}." if names else ""),
        set={
            "state": ItemState.RUNNING,
            "stage": run.stage,
            "rank": pipeline.rank(run.stage),
            "keys": keys,
            "dag_id": run.dag_id,
            "epoch": epoch,
            "visits": visits_until(tx, run),
            "ready_since": None,
            "not_before": None,
            "finished_at": None,
            "recovering": False,
        },
        run=run.id,
    )
    after = items.perform(tx, item, change)
    dead_letters.resolve(tx, item.id, resolution="cleared", by="a clear in Airflow", now=now)
    return Guarded(guarded.decision, runs.by_id(tx, run.id), after)


def _keys_of(pipeline: Pipeline, run: Run) -> Sequence[str]:
    own = pipeline.keys(run.stage) if pipeline.has_stage(run.stage) else (f"{run.pipeline}.{run.stage}",)
    return (AIRFLOW_RUNS_KEY, *own)


def has_free_slots(tx: Tx, keys: Sequence[str], limits: Mapping[str, int], freed: Sequence[str] = ()) -> bool:
    """Whether each key has a unit left, once those in ``freed`` are given back."""
    used = runs.usage(tx)
    for key in freed:
        used[key] = used.get(key, 0) - 1
    return all(key not in limits or used.get(key, 0) < limits[key] for key in (AIRFLOW_RUNS_KEY, *keys))


def visits_until(tx: Tx, run: Run) -> dict[str, int]:
    """Visits as they were when the run was granted: what a rewind undoes does not count against the bound."""
    query = (
        select(run_table.c.stage, func.max(run_table.c.visit))
        .where(run_table.c.item_id == run.item_id, run_table.c.id <= run.id)
        .group_by(run_table.c.stage)
    )
    return {stage: visit for stage, visit in tx.conn.execute(query)}  # noqa: C416 - rows are Row objects

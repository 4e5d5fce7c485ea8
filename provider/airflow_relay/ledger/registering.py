"""Items come in: by an intake, once a key; or by a person who starts a stage for one item."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import func, insert, select

from airflow_relay.core import backpressure as rules
from airflow_relay.core import lifecycle
from airflow_relay.core.completion import StageShape
from airflow_relay.core.item import Change, Item, Run
from airflow_relay.core.naming import MAX_KEY
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.states import IN_FLIGHT, WORK_IN_PROGRESS, EventKind, ItemState, RunState
from airflow_relay.ledger import alerts, codec, dead_letters, guarding, items, results, retention, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import BadItemError, ItemWaitsError, StaleRunError
from airflow_relay.ledger.results import PAYLOAD, Stored
from airflow_relay.ledger.schema import intakes
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.ledger.schema import runs as run_table

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
HIGHEST_PRIORITY: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class NewItem:
    """What an intake has found.

    :param key: the user's own name for it, unique in the pipeline: any string of 1 to 200 characters.
    :param payload: JSON that the stages read.
    :param priority: higher goes first among items of one stage.
    """

    key: str
    payload: Any = None
    priority: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key or len(self.key) > MAX_KEY:
            raise BadItemError(f"key={self.key!r}: give a string of 1 to {MAX_KEY} characters.")
        if _UNSTORABLE.search(self.key):
            raise BadItemError(f"key={self.key!r}: NUL and lone surrogates cannot be stored; leave them out.")
        if (
            isinstance(self.priority, bool)
            or not isinstance(self.priority, int)
            or abs(self.priority) > HIGHEST_PRIORITY
        ):
            raise BadItemError(
                f"priority={self.priority!r} of item {self.key!r}: give a whole number between "
                f"-{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}."
            )

    @classmethod
    def from_any(cls, value: Any) -> NewItem:
        """Accept what an intake function may return: a NewItem, a key, or a mapping with ``key``.

        :raises BadItemError: names the field.
        """
        if isinstance(value, NewItem):
            return value
        if isinstance(value, str):
            return cls(key=value)
        if isinstance(value, Mapping):
            unknown = set(value) - {"key", "payload", "priority"}
            if unknown or "key" not in value:
                raise BadItemError(
                    f"An intake's item has the fields key, payload and priority, not {list(value)}."
                )
            return cls(**value)
        raise BadItemError(
            f"An intake returned {value!r}: return keys, mappings with 'key', or NewItem values."
        )


def found_by_intake(returned: Any) -> list[NewItem]:
    """What an intake function has returned, each item checked.

    :raises BadItemError: it is no list of items; names the field of an item that is wrong.
    """
    if returned is None or isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise BadItemError(
            f"The intake returned {returned!r}: return a list of items, an empty one if nothing is new."
        )
    return [NewItem.from_any(value) for value in returned]


@dataclass(frozen=True)
class Registered:
    """Keys that were new, and keys that the pipeline had already."""

    new: tuple[str, ...]
    known: tuple[str, ...]


def register(
    tx: Tx, pipeline: Pipeline, found: Sequence[tuple[NewItem, Stored]], now: datetime
) -> Registered:
    """Register items; a key that the pipeline has or had already is left as it is."""
    keys = [new.key for new, _ in found]
    known = {
        **items.known_keys(tx, pipeline.name, keys),
        **dict.fromkeys(retention.retired_keys(tx, pipeline.name, keys)),
    }
    created: dict[str, None] = {}
    for new, stored in found:
        if new.key in known or new.key in created:
            continue
        item, change = lifecycle.registered(pipeline=pipeline, key=new.key, priority=new.priority, now=now)
        item = items.create(tx, item, change)
        results.put(tx, item.id, stage=PAYLOAD, visit=0, stored=stored, now=now)
        created[new.key] = None
    return Registered(tuple(created), tuple(k for k in known if k not in created))


def record_intake(
    tx: Tx,
    pipeline: str,
    now: datetime,
    *,
    registered: int = 0,
    known: int = 0,
    skipped_because: str | None = None,
) -> None:
    """Count an intake, also one that did nothing on purpose."""
    tx.conn.execute(
        insert(intakes).values(
            pipeline=pipeline, at=now, registered=registered, known=known, skipped_because=skipped_because
        )
    )


def backpressure(tx: Tx, pipeline: Pipeline, now: datetime) -> str | None:
    """Why the intake has to do nothing this time, counted; ``None`` when it may work.

    Skips that climb raise one alert per pipeline and day. The caller holds the dispatcher's lock.
    """
    query = (
        select(item_table.c.stage, func.count())
        .where(item_table.c.pipeline == pipeline.name, item_table.c.state.in_(list(WORK_IN_PROGRESS)))
        .group_by(item_table.c.stage)
    )
    by_stage: dict[str, int] = {stage: count for stage, count in tx.conn.execute(query)}  # noqa: C416
    reason = rules.must_wait(pipeline, by_stage)
    if reason is not None:
        record_intake(tx, pipeline.name, now, skipped_because=reason)
        _tell_climbing(tx, pipeline, reason, now)
    return reason


def _tell_climbing(tx: Tx, pipeline: Pipeline, reason: str, now: datetime) -> None:
    skipped = [row["skipped_because"] is not None for row in intake_history(tx, pipeline.name, rules.CYCLES)]
    if not rules.begins_to_climb(skipped):
        return
    day = now.astimezone(ZoneInfo(pipeline.timezone)).date().isoformat()
    recent = skipped[: rules.WINDOW]
    text = (
        f"Intake of {pipeline.name}: {sum(recent)} of the last {len(recent)} cycles did nothing, "
        f"more than before. Last reason: {reason}. Either the work is too heavy for the schedule, or "
        "something is stuck: `airflow relay items` shows what waits, and why."
    )
    alerts.raise_alert(tx, f"backpressure:{pipeline.name}:{day}", text, now)


def adopt(
    tx: Tx,
    pipeline: Pipeline,
    *,
    key: str,
    stage: str,
    dag_id: str,
    run_id: str,
    clear_number: int,
    shape: StageShape,
    limits: Mapping[str, int],
    now: datetime,
) -> tuple[Item, Run] | None:
    """Bind a run that a person has started by hand to an item: a new grant that is running already.

    :return: ``None`` while a capacity key that the stage needs has no free unit.
    :raises UnknownItemError: the pipeline has no such item.
    :raises StaleRunError: the item's stage is being run by another run; names it.
    :raises ItemWaitsError: no unit is free, and the item waits for the stage anyway: by the time one is free
        the dispatcher may have let it pass, and a run bound to it then would do the stage again.
    """
    item = items.locked(tx, items.find(tx, key, pipeline.name).id)
    newest = runs.newest(tx, item.id)
    if newest is not None and newest.state is RunState.OPEN and item.state in IN_FLIGHT:
        raise StaleRunError(
            f"Item '{key}' is being run by {newest.dag_id} / {newest.run_id}. "
            "Wait for it, or mark that run failed first."
        )
    if not guarding.has_free_slots(tx, pipeline.keys(stage), limits):
        if item.state is ItemState.READY and item.stage == stage:
            raise ItemWaitsError(
                f"No slot is free. Item '{key}' waits for {stage} in the ledger, and gets a run of its own."
            )
        return None
    visits = {**item.visits, stage: max(1, item.visits.get(stage, 0))}
    declared = pipeline.stage(stage)
    epoch = item.epoch + 1
    row = {
        "item_id": item.id,
        "pipeline": pipeline.name,
        "stage": stage,
        "visit": visits[stage],
        "epoch": epoch,
        "dag_id": dag_id,
        "run_id": run_id,
        "ledger_id": tx.ledger_id,
        "state": RunState.OPEN,
        "klass": item.klass,
        "clear_number": clear_number,
        "attempt": item.attempts,
        "granted_at": now,
        "sent_at": now,
        "confirmed_at": now,
        "started_at": now,
        "shape": shape.to_json(),
        "deadline": None if declared.timeout is None else now + declared.timeout,
    }
    run = codec.run_from(tx.conn.execute(insert(run_table).values(**row).returning(run_table)).one())
    runs.supersede(tx, item.id, by=run, now=now)
    runs.take_slots(tx, run.id, pipeline.keys(stage))
    change = Change(
        kind=EventKind.GRANTED,
        at=now,
        text=f"Started {stage} by hand (grant {epoch}); the item was {item.state.value} at {item.stage}",
        set={
            "state": ItemState.RUNNING,
            "stage": stage,
            "rank": pipeline.rank(stage),
            "keys": pipeline.keys(stage),
            "dag_id": dag_id,
            "epoch": epoch,
            "visits": visits,
            "ready_since": None,
            "not_before": None,
            "finished_at": None,
            "recovering": False,
        },
        detail={"run_id": run_id, "dag_id": dag_id},
        run=run.id,
    )
    after = items.perform(tx, item, change)
    dead_letters.resolve(tx, item.id, resolution="started by hand", by="a run started in Airflow", now=now)
    return after, run


def intake_history(tx: Tx, pipeline: str, limit: int = 50) -> list[Mapping[str, Any]]:
    """The latest intakes, newest first."""
    query = select(intakes).where(intakes.c.pipeline == pipeline).order_by(intakes.c.id.desc()).limit(limit)
    return [dict(r._mapping) for r in tx.conn.execute(query)]  # noqa: SLF001 - SQLAlchemy's public accessor

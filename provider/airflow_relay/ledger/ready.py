"""The ready items as a decision sees them: all of them by group, and of each group the first few.

Ten thousand items may be ready while one run is free. So nothing here reads them all: groups are found by
jumping from one to the next along the index ``ix_items_ready``, and counted no further than is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.sql.elements import KeyedColumnElement

from airflow_relay.core.dispatch import AGING_STEP
from airflow_relay.core.snapshot import Candidate, Group
from airflow_relay.core.states import ItemState
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import items
from airflow_relay.ledger.types import Instant, to_micros

_BAND: Final = AGING_STEP // timedelta(microseconds=1)
_NO_END: Final = datetime(9999, 1, 1, tzinfo=timezone.utc)
_ALIKE: Final = ("pipeline", "stage", "dag_id", "klass", "rank", "keys")
"""What the items of a group have in common, in the order of the index."""

_ALL: Final = 2**31 - 1
_MOST: Final = bindparam("most", type_=Integer)


def groups(tx: Tx, now: datetime, *, most: int | None = None) -> list[Group]:
    """The groups that have items which are due, by pipeline and stage.

    :param most: counting stops here, so that ``count`` means "at least so many"; ``None`` counts all.
    """
    values = {"now": now, "most": _ALL if most is None else most}
    return [
        Group(
            pipeline=r.pipeline,
            stage=r.stage,
            dag_id=r.dag_id,
            klass=r.klass,
            rank=r.rank,
            keys=_keys(r.keys_text),
            count=r.number,
            oldest=r.oldest,
        )
        for r in tx.conn.execute(_groups_statement(), values)
        if r.number
    ]


@lru_cache(1000)
def _keys(text: str) -> tuple[str, ...]:
    """There are few different ones, and each decision reads them of each group."""
    return tuple(json.loads(text))


def candidates(tx: Tx, group: Group, wanted: int, now: datetime) -> Sequence[Candidate]:
    """The first ``wanted`` of a group in the order of the rules: aged band, own priority, age."""
    if wanted <= 0:
        return ()
    # Nothing comes before the band of the oldest item, so the others are read only if that one is too small.
    steps = (now - group.oldest) // AGING_STEP
    if steps > 0:
        found = _first(tx, group, wanted, now, until=now - steps * AGING_STEP)
        if len(found) == wanted:
            return found
    return _first(tx, group, wanted, now, until=_NO_END)


def _first(tx: Tx, group: Group, wanted: int, now: datetime, *, until: datetime) -> Sequence[Candidate]:
    values = {
        "now": now,
        "at": to_micros(now),
        "until": until,
        "most": wanted,
        **{f"of_{name}": getattr(group, name) for name in _ALIKE},
        "of_keys": list(group.keys),
    }
    return [
        Candidate(
            item_id=r.id,
            pipeline=group.pipeline,
            stage=group.stage,
            dag_id=group.dag_id,
            klass=group.klass,
            rank=group.rank,
            priority=r.priority,
            keys=group.keys,
            ready_since=r.ready_since,
            not_before=r.not_before,
        )
        for r in tx.conn.execute(_candidates_statement(), values)
    ]


def dags(tx: Tx) -> set[str]:
    """DAGs that have ready items: those whose pause state matters to the next decision."""
    return set(tx.conn.execute(_dags_statement()).scalars())


# Building such a statement costs more than running it, so a process does it once.


@cache
def _groups_statement() -> Select[Any]:
    found = _kinds()
    own, counted = items.alias("own"), items.alias("counted")
    oldest = (
        select(own.c.ready_since)
        .where(_same(own, found), _due(own))
        .order_by(own.c.ready_since)
        .limit(1)
        .correlate(found)
    )
    # The first of a group is its oldest, and nearly always due: then nothing is asked again.
    first = case((_due(found), found.c.ready_since), else_=oldest.scalar_subquery())
    few = select(counted.c.id).where(_same(counted, found), _due(counted)).limit(_MOST).correlate(found)
    return (
        select(
            *(type_coerce(c, Text).label("keys_text") if c.name == "keys" else c for c in _alike(found)),
            first.label("oldest"),
            select(func.count()).select_from(few.subquery("few")).scalar_subquery().label("number"),
        )
        .where(found.c.pipeline.is_not(None))
        .order_by(*_alike(found))
    )


@cache
def _candidates_statement() -> Select[Any]:
    t = items.c
    waited = bindparam("at", type_=BigInteger) - type_coerce(t.ready_since, BigInteger)
    band = waited // literal(_BAND, BigInteger)
    same = [column == bindparam(f"of_{column.name}", type_=column.type) for column in _alike(items)]
    return (
        select(t.id, t.priority, t.ready_since, t.not_before)
        .where(_ready(items), *same, _due(items), t.ready_since <= bindparam("until", type_=Instant))
        .order_by(band.desc(), t.priority.desc(), t.ready_since, t.id)
        .limit(_MOST)
    )


@cache
def _dags_statement() -> Select[Any]:
    found = _kinds()
    return select(found.c.dag_id).where(found.c.dag_id.is_not(None))


def _kinds() -> CTE:
    """What each group has in common, and its oldest item's times, by asking again and again for the next one.

    A row holds one group, and the id of the oldest item of the next one; the first row holds no group yet.
    """
    start, this, following = items.alias("start"), items.alias("this"), items.alias("following")
    smallest = select(start.c.id).where(_ready(start)).order_by(*_kept(start)[:-1]).limit(1)
    nothing = [cast(null(), column.type).label(column.name) for column in _kept(start)]
    found = select(smallest.scalar_subquery().label("next_id"), *nothing).cte("found", recursive=True)
    greater = (
        select(following.c.id)
        .where(_ready(following), tuple_(*_alike(following)) > tuple_(*_alike(this)))
        .order_by(*_kept(following)[:-1])
        .limit(1)
        .correlate(this)
    )
    return found.union_all(
        select(greater.scalar_subquery(), *_kept(this)).select_from(
            found.join(this, this.c.id == found.c.next_id)
        )
    )


def _alike(rows: FromClause) -> list[KeyedColumnElement[Any]]:
    return [rows.c[name] for name in _ALIKE]


def _kept(rows: FromClause) -> list[KeyedColumnElement[Any]]:
    """What a row of :func:`_kinds` holds; all but the last are the index."""
    return [*_alike(rows), rows.c.ready_since, rows.c.not_before]


def _same(rows: FromClause, as_this: FromClause) -> ColumnElement[bool]:
    """Ready, and of the same group."""
    condition: ColumnElement[bool] = _ready(rows)
    for one, other in zip(_alike(rows), _alike(as_this), strict=True):
        condition = condition & (one == other)
    return condition


def _ready(rows: FromClause) -> ColumnElement[bool]:
    """Written out in the statement: SQLite uses the index of ready items only where it sees that they are."""
    state = bindparam("ready", ItemState.READY, type_=rows.c.state.type, literal_execute=True, unique=True)
    condition: ColumnElement[bool] = rows.c.state == state
    return condition


def _due(rows: FromClause) -> ColumnElement[bool]:
    return or_(rows.c.not_before.is_(None), rows.c.not_before <= bindparam("now", type_=Instant))

"""Short ways to write a snapshot of the dispatcher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_relay.core.dispatch import (
    BreakerGate,
    Candidate,
    Conditions,
    Group,
    Plan,
    Snapshot,
    order_key,
    wanted,
)
from airflow_relay.core.states import PriorityClass, WaitReason

P0, P1, P2, P3 = PriorityClass
WORK = ("a", "work")
NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)

GATES = [
    (WaitReason.HOLD, {"conditions": Conditions(holds={"P2": "a person talks"})}, "held: a person talks"),
    (WaitReason.HOLD, {"conditions": Conditions(holds={"a": "vacation"})}, "held: vacation"),
    (
        WaitReason.PAUSED,
        {"conditions": Conditions(paused_dags=frozenset({"a__work"}))},
        "'a__work' is paused",
    ),
    (WaitReason.BREAKER, {"breakers": {WORK: BreakerGate.OPEN}}, "its breaker is open"),
    (
        WaitReason.BUDGET,
        {"conditions": Conditions(over_budget=frozenset({"a"}))},
        "token budget of today",
    ),
    (
        WaitReason.NOT_BEFORE,
        {"closed_until": {WORK: NOW + timedelta(hours=1)}},
        "opens at 2026-06-01T13:00",
    ),
]
"""Each gate of stage ``a.work``: reason, what closes it, and words of the explanation."""


def item(item_id: int, stage: str = "work", *, waited: float = 0, **more: Any) -> Candidate:
    """A ready item of pipeline ``a``; ``waited`` in hours."""
    pipeline = more.pop("pipeline", "a")
    values: dict[str, Any] = {
        "dag_id": f"{pipeline}__{stage}",
        "klass": PriorityClass.P2,
        "rank": 100,
        "priority": 0,
        "keys": (f"{pipeline}.{stage}",),
        "ready_since": NOW - timedelta(hours=waited),
        "not_before": None,
        **more,
    }
    return Candidate(item_id=item_id, pipeline=pipeline, stage=stage, **values)


def kinds_of(items: Iterable[Candidate], now: datetime) -> dict[tuple[Any, ...], list[Candidate]]:
    """Ready items by what a ledger groups them by."""
    kinds: dict[tuple[Any, ...], list[Candidate]] = {}
    for c in items:
        if c.due(now):
            kinds.setdefault((c.pipeline, c.stage, c.dag_id, c.klass, c.rank, c.keys), []).append(c)
    return kinds


def groups_of(items: Iterable[Candidate], now: datetime = NOW) -> list[Group]:
    """The groups that a ledger with these ready items would count."""
    return [_group(members) for members in kinds_of(items, now).values()]


def _group(members: list[Candidate]) -> Group:
    first = members[0]
    return Group(
        pipeline=first.pipeline,
        stage=first.stage,
        dag_id=first.dag_id,
        klass=first.klass,
        rank=first.rank,
        keys=first.keys,
        count=len(members),
        oldest=min(c.ready_since for c in members),
    )


def snapshot(*items: Candidate, now: datetime = NOW, **more: Any) -> Snapshot:
    """A snapshot in which every ready item is loaded."""
    return Snapshot(candidates=items, groups=groups_of(items, now), **more)


def as_a_ledger_loads(full: Snapshot, now: datetime = NOW) -> Snapshot:
    """The same snapshot with only the candidates that :func:`wanted` asks for."""
    bare, loaded = full.with_candidates(()), []
    for members in kinds_of(full.candidates, now).values():
        members.sort(key=lambda c: order_key(c, now))
        loaded += members[: wanted(_group(members), bare, now)]
    return full.with_candidates(loaded)


def granted(plan: Plan) -> list[int]:
    return [grant.item_id for grant in plan.grants]


def units_held(plan: Plan) -> Counter[str]:
    return Counter(reservation.key for reservation in plan.reserved)

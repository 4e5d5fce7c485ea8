"""The values that rules decide about: an item, one of its runs, a line of its log, and a change to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from airflow_relay.core.states import EventKind, ItemState, PriorityClass, RunResult, RunState


@dataclass(frozen=True, kw_only=True)
class Item:
    """One piece of work. Every field but ``id`` is the fold of the item's events."""

    id: int
    pipeline: str
    key: str
    state: ItemState
    stage: str
    """What is to run or runs; the last stage once the item is finished."""
    status: str = ""
    epoch: int = 0
    """Grows with each grant; the fencing token."""
    klass: PriorityClass = PriorityClass.P2
    rank: int = 0
    priority: int = 0
    keys: tuple[str, ...] = ()
    dag_id: str = ""
    ready_since: datetime | None = None
    not_before: datetime | None = None
    visits: Mapping[str, int] = field(default_factory=dict)
    error_class: str | None = None
    error_reason: str | None = None
    attempts: int = 0
    """Recovery attempts charged on ``attempts_day``."""
    attempts_day: str | None = None
    """ISO date in the pipeline's timezone."""
    last_attempt_at: datetime | None = None
    recovering: bool = False
    """The sweep has made it ready: its next grant is charged as an attempt."""
    registered_at: datetime
    last_activity_at: datetime
    finished_at: datetime | None = None

    @property
    def visit(self) -> int:
        """How often the item has entered its present stage, from 1."""
        return self.visits.get(self.stage, 0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One grant: the right to run one stage for one item, issued once."""

    id: int
    item_id: int
    pipeline: str
    stage: str
    visit: int
    epoch: int
    dag_id: str
    run_id: str
    ledger_id: str
    state: RunState
    klass: PriorityClass
    clear_number: int = 0
    result: RunResult | None = None
    outcome: str | None = None
    error_class: str | None = None
    error_reason: str | None = None
    attempt: int = 0
    ready_since: datetime | None = None
    granted_at: datetime
    sent_at: datetime | None = None
    """When the run was last requested from Airflow."""
    confirmed_at: datetime | None = None
    started_at: datetime | None = None
    deadline: datetime | None = None
    closed_at: datetime | None = None
    superseded_by: int | None = None
    shape: Mapping[str, Any] | None = None
    """The stage's :class:`~airflow_relay.core.completion.StageShape`, as its first guarded task told it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A state change of an item together with the event that tells it.

    :param set: item field → new value; applied to the row and written into the event.
    :param detail: what a person reads beside it; JSON, no secrets.
    """

    kind: EventKind
    at: datetime
    text: str
    set: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    run: int | None = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the activity log."""

    id: int
    item_id: int
    at: datetime
    kind: EventKind
    text: str
    set: Mapping[str, Any]
    detail: Mapping[str, Any]
    epoch: int
    run: int | None = None


def apply(item: Item, change: Change) -> Item:
    """Return the item after the change; each change is an activity."""
    return replace(item, **{"last_activity_at": change.at, **change.set})


def replay(item_id: int, events: Iterable[Event]) -> Item:
    """Rebuild an item from its events, oldest first, from the last snapshot or the registration on.

    :raises ValueError: the events begin with neither.
    """
    current: Item | None = None
    for event in events:
        if event.kind in (EventKind.REGISTERED, EventKind.SNAPSHOT):
            current = Item(id=item_id, **_known(event.set))
        elif current is None:
            raise ValueError(f"Item {item_id}: the log begins with {event.kind.value}, not a registration.")
        else:
            current = replace(current, **{"last_activity_at": event.at, **_known(event.set)})
    if current is None:
        raise ValueError(f"Item {item_id} has no events.")
    return current


_FIELDS = frozenset(f.name for f in fields(Item)) - {"id"}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k in _FIELDS}


def snapshot_of(item: Item) -> dict[str, Any]:
    """All fields but ``id``: what a registration or snapshot event sets."""
    values = dict(vars(item))
    del values["id"]
    return values

"""The values that a dispatch decision is made from and made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from airflow_relay.core.breaker import BreakerGate
from airflow_relay.core.limits import Adaptive
from airflow_relay.core.states import PriorityClass, WaitReason

StageKey = tuple[str, str]
"""(pipeline, stage)"""

Kind = tuple[str, str, str, PriorityClass, int, tuple[str, ...]]
"""What the items of one group have in common: what gates look at, and what they need."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A ready item that the ledger has loaded for this decision.

    :param keys: capacity keys of which a run holds one unit each, ``airflow.runs`` aside.
    """

    item_id: int
    pipeline: str
    stage: str
    dag_id: str
    klass: PriorityClass
    rank: int
    priority: int
    keys: tuple[str, ...]
    ready_since: datetime
    not_before: datetime | None = None

    @cached_property
    def kind(self) -> Kind:
        return (self.pipeline, self.stage, self.dag_id, self.klass, self.rank, self.keys)

    def due(self, now: datetime) -> bool:
        """Whether its ``not_before`` has passed."""
        return self.not_before is None or self.not_before <= now


@dataclass(frozen=True, kw_only=True)
class Group:
    """All ready items of one stage whose ``not_before`` has passed, counted but not loaded."""

    pipeline: str
    stage: str
    dag_id: str
    klass: PriorityClass
    rank: int
    keys: tuple[str, ...]
    count: int
    oldest: datetime

    @cached_property
    def kind(self) -> Kind:
        return (self.pipeline, self.stage, self.dag_id, self.klass, self.rank, self.keys)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What only Airflow knows; the Airflow ring reads it before the ledger's transaction begins."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """Effective overrides from ``relay_limits``: capacity key → limit."""
    adaptive: Mapping[str, Adaptive] = field(default_factory=dict)
    """Capacity key → rule of a limit that adapts; where it stands is in the ledger, shared by all nodes."""
    holds: Mapping[str, str] = field(default_factory=dict)
    """A class (``"P2"``) or a pipeline's name → reason."""
    paused_dags: frozenset[str] = frozenset()
    over_budget: frozenset[str] = frozenset()
    """Pipelines that have used up their token budget of today."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that one decision depends on, the time aside."""

    candidates: Sequence[Candidate] = ()
    """Of each group at least the first ``wanted(group)`` items in ``order_key`` order."""
    groups: Sequence[Group] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    """Capacity key → units that open runs hold, ``airflow.runs`` included."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Capacity key → effective limit; a key that is absent has none (``airflow.runs``: 60)."""
    conditions: Conditions = field(default_factory=Conditions)
    breakers: Mapping[StageKey, BreakerGate] = field(default_factory=dict)
    """Absent means closed."""
    active_classes: Mapping[PriorityClass, int] = field(default_factory=dict)
    """Open runs per class."""
    closed_until: Mapping[StageKey, datetime | None] = field(default_factory=dict)
    """Stages outside their window → when it opens; absent or None means open."""
    running: Sequence[tuple[str, ...]] = ()
    """The keys of each open run. Optional: it only spares reservations that are not needed."""

    def with_candidates(self, candidates: Sequence[Candidate]) -> Snapshot:
        """The same snapshot once the candidates are loaded."""
        return replace(self, candidates=candidates)


class Grant(NamedTuple):
    """The decision to run one item now.

    :param steps: aging steps that it has waited.
    :param probe: it is the one run that an open breaker lets through.
    """

    candidate: Candidate
    steps: int
    probe: bool = False

    @property
    def item_id(self) -> int:
        return self.candidate.item_id

    @property
    def pipeline(self) -> str:
        return self.candidate.pipeline

    @property
    def stage(self) -> str:
        return self.candidate.stage

    @property
    def reason(self) -> str:
        """What its place in the order came from, for people."""
        chosen = self.candidate
        aged = f" + {self.steps} for waiting" if self.steps else ""
        text = f"{chosen.klass.value}, rank {chosen.rank}{aged}, priority {chosen.priority}"
        return f"{text}; the breaker's probe" if self.probe else text


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A free unit that is held back for an aged item."""

    item_id: int
    key: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one decision says, with reasons."""

    grants: tuple[Grant, ...]
    waiting: Mapping[StageKey, WaitReason]
    """Stages with ready items left over, and why the first of these waits."""
    why: Mapping[StageKey, str]
    """The same in words, for people."""
    reserved: tuple[Reservation, ...]
    wake_at: datetime | None
    """The next time known now at which a gate opens by itself (window, ``not_before``)."""

    def reason(self, candidate: Candidate, now: datetime) -> WaitReason:
        """Why this item has no grant yet, by this plan."""
        if not candidate.due(now):
            return WaitReason.NOT_BEFORE
        if any(grant.item_id == candidate.item_id for grant in self.grants):
            return WaitReason.NEXT
        return self.waiting.get((candidate.pipeline, candidate.stage), WaitReason.NEXT)

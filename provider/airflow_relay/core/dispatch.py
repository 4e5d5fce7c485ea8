"""What should run next, given everything else that is running? One pure decision over the whole ledger.

**Order.** Class (P0 to P3), then effective rank (stages near the end first), then the item's own
priority, then age, then id. The effective rank grows by one per :data:`AGING_STEP` waited. The decision
goes through the candidates in this order and grants each that no gate stops and for which every key that
it needs has a free unit; it takes all of them or none. What cannot run is passed over, so nothing idles
behind it.

**Gates** stop a stage whatever is free: hold, paused DAG, open breaker, used-up budget, closed window, a
key whose limit is 0, and, for idle work (P3), any P2 or P0 item that runs or could run. P1 work is light
by definition and does not stop P3.

**Reservation.** Keys that never come free together would starve an item that needs several. So an aged
item (one that has waited :data:`AGING_STEP`) with a key missing holds back a unit of each of its other
limited keys from whatever is ordered after it. Units must not idle for nothing: each key has at most one
stage that may reserve it, the one whose oldest item has the highest rank plus aging, fractions of a step
included; a unit is not held back when every run that blocks the item will bring one along as it ends; and
``airflow.runs``, which every run holds, is for that reason never held back. Reservations are decided
afresh in each decision, in order, and no unit is held by an item that does not run, so two aged items
cannot wait for each other.

**The aging bound.** Let ``r`` be an item's rank and ``R`` the highest rank in its class. What has rank
``s`` and becomes ready ``AGING_STEP * (s - r + 1)`` or more after the item stays behind it for good. So
from ``AGING_STEP * (R - r + 1)`` on, the items that may still pass it are a fixed set that only shrinks;
say there are ``n``. One step later all of them have aged. Then among them and the item, the one with the
highest rank plus aging (fractions included, so it does not change with time) has the right to reserve all
its keys, and only members of the set can be ordered before it. Within ``T``, the longest run, every unit
that it misses has come free and was held for it; so in each ``T`` one of the set is granted, and the item
waits at most (:func:`aging_bound`)::

    AGING_STEP * (R - r + 2) + (n + 1) * T

beside time behind a gate, and while gates and limits stand (a limit that is lowered, or a gate that opens
to older work, may cost one more ``T``). So nothing starves within its class. Across classes the order is
strict on purpose: P3 waits as long as P2 has work, and work of a higher class counts into ``n`` whenever
it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Final

from airflow_relay.core.breaker import BreakerGate
from airflow_relay.core.capacity import Room, check_shared_keys, limit_of
from airflow_relay.core.snapshot import (
    Candidate,
    Conditions,
    Grant,
    Group,
    Kind,
    Plan,
    Reservation,
    Snapshot,
    StageKey,
)
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass, WaitReason

__all__ = [
    "AGING_STEP",
    "BreakerGate",
    "Candidate",
    "Conditions",
    "Decision",
    "Grant",
    "Group",
    "Plan",
    "Reservation",
    "Snapshot",
    "StageKey",
    "age",
    "aging_bound",
    "check_shared_keys",
    "dispatch",
    "explain",
    "gate",
    "grants",
    "order_key",
    "wanted",
]

AGING_STEP: Final = timedelta(hours=2)
"""Waiting so long raises the effective rank by one; from the first step on an item counts as aged."""

STOPS_IDLE: Final = frozenset({PriorityClass.P0, PriorityClass.P2})
"""Classes beside which idle work (P3) is not granted."""

CLASS_ORDER: Final = {klass: place for place, klass in enumerate(PriorityClass)}


def age(ready_since: datetime, now: datetime) -> int:
    """Full aging steps waited, time behind gates included; never negative."""
    waited = now - ready_since
    return waited // AGING_STEP if waited >= AGING_STEP else 0


def order_key(candidate: Candidate, now: datetime) -> tuple[int, int, int, datetime, int]:
    """Sort key of the dispatch order, smallest first."""
    return (
        CLASS_ORDER[candidate.klass],
        -(candidate.rank + age(candidate.ready_since, now)),
        -candidate.priority,
        candidate.ready_since,
        candidate.item_id,
    )


def aging_bound(*, rank: int, highest_rank: int, ahead: int, longest_run: timedelta) -> timedelta:
    """The longest that an item can wait, gates aside; the module's docstring derives it.

    :param ahead: waiting items that may still pass it at the time from which on newcomers cannot.
    """
    return AGING_STEP * (max(0, highest_rank - rank) + 2) + (ahead + 1) * longest_run


def gate(group: Group | Candidate, snapshot: Snapshot, now: datetime) -> WaitReason | None:
    """Why nothing of this stage may start, whatever is free; None when no gate stops it."""
    found = _gate(group, snapshot, now)
    if found is not None or group.klass is not PriorityClass.P3:
        return found
    return WaitReason.IDLE if _idle_must_wait(snapshot, snapshot.candidates, now) else None


def wanted(group: Group, snapshot: Snapshot, now: datetime) -> int:
    """As :meth:`Decision.wanted`, of one group alone."""
    return Decision(snapshot, now).wanted(group)


def dispatch(snapshot: Snapshot, now: datetime) -> Plan:
    """Decide what runs next. Deterministic; the order of the candidates given does not matter."""
    decision = Decision(snapshot, now)
    decision.decide(snapshot.candidates)
    return decision.plan()


def grants(snapshot: Snapshot, now: datetime) -> tuple[Grant, ...]:
    """What :func:`dispatch` grants, without finding out why the others wait."""
    return tuple(Decision(snapshot, now).decide(snapshot.candidates))


def explain(candidate: Candidate, snapshot: Snapshot, now: datetime) -> WaitReason:
    """Why this item waits. For many items at once call ``dispatch(…).reason`` on one plan."""
    return dispatch(snapshot, now).reason(candidate, now)


def _gate(group: Group | Candidate, snapshot: Snapshot, now: datetime) -> WaitReason | None:
    """Every gate but the one of idle work; what a person has set comes first."""
    stage, conditions = (group.pipeline, group.stage), snapshot.conditions
    holds = conditions.holds
    if holds and (group.klass.value in holds or group.pipeline in holds or group.dag_id in holds):
        return WaitReason.HOLD
    if group.dag_id in conditions.paused_dags:
        return WaitReason.PAUSED
    if snapshot.breakers and snapshot.breakers.get(stage) is BreakerGate.OPEN:
        return WaitReason.BREAKER
    if group.pipeline in conditions.over_budget:
        return WaitReason.BUDGET
    if snapshot.closed_until and _is_closed(snapshot.closed_until.get(stage), now):
        return WaitReason.NOT_BEFORE
    return WaitReason.SLOT if _never_free(group.keys, snapshot) else None


def _is_closed(until: datetime | None, now: datetime) -> bool:
    return until is not None and until > now


def _never_free(keys: Iterable[str], snapshot: Snapshot) -> list[str]:
    """Keys that a person has set to 0: waiting for them must neither reserve units nor stop idle work."""
    limits = snapshot.limits
    return [key for key in (*keys, AIRFLOW_RUNS_KEY) if limits.get(key, 1) <= 0]


def _idle_must_wait(snapshot: Snapshot, candidates: Iterable[Candidate], now: datetime) -> bool:
    """Whether work of a class that stops P3 runs or could run, be it only waiting for a slot."""
    if any(snapshot.active_classes.get(klass, 0) > 0 for klass in STOPS_IDLE):
        return True
    groups: Iterable[Group | Candidate] = (g for g in snapshot.groups if g.count > 0)
    loaded: Iterable[Group | Candidate] = (c for c in candidates if c.due(now))
    return any(r.klass in STOPS_IDLE and _gate(r, snapshot, now) is None for r in chain(groups, loaded))


class Decision:
    """One decision while it is made: what it needs to see, what it grants, and why the rest waits.

    :param snapshot: with its candidates, or without: then they are told to :meth:`decide`.
    """

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self.snapshot, self.now = snapshot, now
        self.candidates = snapshot.candidates
        self.room = Room(snapshot)
        self._idle_waits: bool | None = None
        self.grants: list[Grant] = []
        self.reserved: list[Reservation] = []
        self.gates: dict[Kind, WaitReason | None] = {}

    def wanted(self, group: Group) -> int:
        """How many of the group's items, in :func:`order_key` order, the decision needs to see.

        No more than could be granted with what is free, and one more where that one may reserve; so a
        decision costs the same with a hundred ready items and with ten thousand.
        """
        if group.count <= 0 or self.gate(group) is not None:
            return 0
        free = self.room.free
        if self.room.full:
            return 0
        limited = self.room.limited(group.keys)
        most = min(group.count, free[AIRFLOW_RUNS_KEY], *[free[key] for key in limited])
        if self.probes((group.pipeline, group.stage)):
            most = min(most, 1)
        may_reserve = len(limited) > 1 and age(group.oldest, self.now) > 0
        return min(group.count, most + 1) if may_reserve else most

    def decide(self, candidates: Sequence[Candidate]) -> list[Grant]:
        """Go through the candidates in order."""
        if candidates is not self.candidates:
            self._see(candidates)
        now = self.now
        due = [c for c in candidates if c.due(now)]
        if len(due) > 1:
            due.sort(key=lambda c: order_key(c, now))
        for candidate in due:
            if self.room.full:
                break
            self.consider(candidate)
        return self.grants

    def _see(self, candidates: Sequence[Candidate]) -> None:
        """Candidates that are new here may be work that idle work has to wait for."""
        self.candidates = candidates
        if self._idle_waits is False:
            self._idle_waits = None
            self.gates.clear()

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return (*self.snapshot.groups, *self.ungrouped())

    def gate(self, group: Group | Candidate) -> WaitReason | None:
        """As :func:`gate`, each kind asked once."""
        kind = group.kind
        if kind not in self.gates:
            found = _gate(group, self.snapshot, self.now)
            idle = found is None and group.klass is PriorityClass.P3 and self.idle_waits()
            self.gates[kind] = WaitReason.IDLE if idle else found
        return self.gates[kind]

    def idle_waits(self) -> bool:
        """Asked for idle work alone, and once."""
        if self._idle_waits is None:
            self._idle_waits = _idle_must_wait(self.snapshot, self.candidates, self.now)
        return self._idle_waits

    def consider(self, candidate: Candidate) -> None:
        if self.gate(candidate) is not None:
            return
        stage = (candidate.pipeline, candidate.stage)
        probe = self.probes(stage)
        if probe and self.probe_is_out(stage):
            return
        missing = self.room.short(candidate.keys)
        if missing:
            self.reserve(candidate, missing)
            return
        self.room.take(candidate.keys)
        steps = age(candidate.ready_since, self.now)
        self.grants.append(Grant(candidate=candidate, steps=steps, probe=probe))

    def probes(self, stage: StageKey) -> bool:
        """Whether the stage's breaker lets exactly one run through."""
        breakers = self.snapshot.breakers
        return bool(breakers) and breakers.get(stage) is BreakerGate.PROBE

    def probe_is_out(self, stage: StageKey) -> bool:
        return self.probes(stage) and any((g.pipeline, g.stage) == stage for g in self.grants)

    @cached_property
    def may_reserve(self) -> set[Kind]:
        """What may hold units back: along each limited key the kind whose oldest item comes first.

        A kind that needs one limited key holds nothing back, and yet none behind it may reserve that key.
        """
        aged = [g for g in self.groups if g.count and age(g.oldest, self.now) > 0 and self.gate(g) is None]
        aged.sort(
            key=lambda g: (CLASS_ORDER[g.klass], -(g.rank + (self.now - g.oldest) / AGING_STEP), g.kind)
        )
        chosen: set[Kind] = set()
        spoken_for: set[str] = set()
        for group in aged:
            keys = self.room.limited(group.keys)
            if spoken_for.isdisjoint(keys):
                chosen.add(group.kind)
                spoken_for.update(keys)
        return chosen

    def reserve(self, candidate: Candidate, missing: list[str]) -> None:
        """Hold units back for the first of its kind that cannot run, if it has aged."""
        kind = candidate.kind
        if age(candidate.ready_since, self.now) < 1 or kind not in self.may_reserve:
            return
        self.may_reserve.remove(kind)
        for key in self.room.limited(candidate.keys):
            if key in missing or self.room.comes_along(key, missing):
                continue
            self.room.free[key] -= 1
            self.reserved.append(
                Reservation(
                    item_id=candidate.item_id,
                    key=key,
                    reason=f"held back for item {candidate.item_id}, which waits for {', '.join(missing)}",
                )
            )

    def plan(self) -> Plan:
        waiting: dict[StageKey, WaitReason] = {}
        why: dict[StageKey, str] = {}
        left: dict[StageKey, int] = {}
        for grant in self.grants:
            stage = (grant.pipeline, grant.stage)
            left[stage] = left.get(stage, 0) - 1
        for group in self.groups:
            stage = (group.pipeline, group.stage)
            left[stage] = left.get(stage, 0) + group.count
        for group in self.groups:
            stage = (group.pipeline, group.stage)
            if stage not in waiting and left[stage] > 0:
                waiting[stage], why[stage] = self.explain(group)
        opens = [self.snapshot.closed_until.get(stage) for stage in waiting]
        opens += [c.not_before for c in self.candidates]
        wake_at = min((at for at in opens if at is not None and at > self.now), default=None)
        return Plan(
            grants=tuple(self.grants),
            waiting=waiting,
            why=why,
            reserved=tuple(self.reserved),
            wake_at=wake_at,
        )

    def ungrouped(self) -> list[Group]:
        """Groups of candidates that came without one."""
        known = {(g.pipeline, g.stage) for g in self.snapshot.groups}
        loose: dict[StageKey, list[Candidate]] = {}
        for candidate in self.candidates:
            stage = (candidate.pipeline, candidate.stage)
            if stage not in known and candidate.due(self.now):
                loose.setdefault(stage, []).append(candidate)
        return [
            Group(
                pipeline=first.pipeline,
                stage=first.stage,
                dag_id=first.dag_id,
                klass=first.klass,
                rank=first.rank,
                keys=first.keys,
                count=len(rest) + 1,
                oldest=min(c.ready_since for c in (first, *rest)),
            )
            for first, *rest in loose.values()
        ]

    def explain(self, group: Group) -> tuple[WaitReason, str]:
        found = self.gate(group)
        if found is not None:
            return found, self.words(found, group)
        if self.probe_is_out((group.pipeline, group.stage)):
            return WaitReason.BREAKER, "its breaker lets one probe through, and that is on its way"
        short = self.room.short((*group.keys, AIRFLOW_RUNS_KEY))
        if not short:
            return WaitReason.NEXT, "nothing stands in its way: the next dispatch grants it"
        return WaitReason.SLOT, "; ".join(self.shortage(key) for key in short)

    def shortage(self, key: str) -> str:
        held = sum(r.key == key for r in self.reserved)
        reserved = f", {held} reserved for items that have waited long" if held else ""
        return (
            f"{self.room.used(key)} of {limit_of(key, self.snapshot)} units of '{key}' are in use{reserved}"
        )

    def words(self, reason: WaitReason, group: Group) -> str:
        holds = self.snapshot.conditions.holds
        opens = self.snapshot.closed_until.get((group.pipeline, group.stage))
        zero = _never_free(group.keys, self.snapshot)
        scopes = (group.pipeline, group.klass.value, group.dag_id)
        hold = next((holds[scope] for scope in scopes if scope in holds), "")
        return {
            WaitReason.HOLD: f"held: {hold}",
            WaitReason.PAUSED: f"DAG '{group.dag_id}' is paused",
            WaitReason.BREAKER: "its breaker is open",
            WaitReason.BUDGET: f"pipeline '{group.pipeline}' has used up its token budget of today",
            WaitReason.NOT_BEFORE: f"its window opens at {opens.isoformat() if opens else ''}",
            WaitReason.SLOT: f"the limit of {', '.join(repr(k) for k in zero)} is 0",
            WaitReason.IDLE: "idle work waits while P2 work runs or could run",
        }[reason]

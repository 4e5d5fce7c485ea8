"""What stands in the way of refiring an item: the dispatcher's own gates and slots, asked before a charge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from airflow_relay.core import dispatch, recovery
from airflow_relay.core.breaker import BreakerGate
from airflow_relay.core.capacity import Room
from airflow_relay.core.finding import Finding, RecoveryAction
from airflow_relay.core.item import Item
from airflow_relay.core.rules import RuleSet
from airflow_relay.core.snapshot import Group, Snapshot, StageKey
from airflow_relay.core.states import WaitReason


class Obstacles:
    """Free capacity as a sweep's plan grows: an item is refired only into a slot that it can have at once.

    :param snapshot: as the dispatcher sees it, its windows those of the stages that are asked about.
    """

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._room = Room(snapshot)
        self._gates: dict[tuple[StageKey, str], WaitReason | None] = {}
        self._probes: set[StageKey] = set()

    def of(self, item: Item) -> WaitReason | None:
        """Why the item's stage could not be granted now; ``None`` when nothing is in the way."""
        gate = self._gate(item)
        if gate is not None:
            return gate
        if (item.pipeline, item.stage) in self._probes:
            return WaitReason.BREAKER
        if self._room.full or self._room.short(item.keys):
            return WaitReason.SLOT
        return None

    def take(self, item: Item) -> None:
        """The item is going to be refired: its slots are taken, and so is its stage's place for a probe."""
        self._room.take(item.keys)
        stage = (item.pipeline, item.stage)
        if self._snapshot.breakers.get(stage) is BreakerGate.PROBE:
            self._probes.add(stage)

    def _gate(self, item: Item) -> WaitReason | None:
        kind = ((item.pipeline, item.stage), item.dag_id)
        if kind not in self._gates:
            self._gates[kind] = dispatch.gate(_group(item), self._snapshot, self._now)
        return self._gates[kind]


def _group(item: Item) -> Group:
    return Group(
        pipeline=item.pipeline,
        stage=item.stage,
        dag_id=item.dag_id,
        klass=item.klass,
        rank=item.rank,
        keys=item.keys,
        count=1,
        oldest=item.last_activity_at,
    )


def with_obstacles(
    findings: Iterable[Finding], *, snapshot: Snapshot, rules: RuleSet, now: datetime
) -> list[Finding]:
    """Give out the free slots in the order of the sweep; what is to be refired and gets none has an obstacle.

    :param snapshot: as for :class:`Obstacles`.
    """
    obstacles = Obstacles(snapshot, now)
    given: list[Finding] = []
    refires = 0
    for finding in sorted(findings, key=lambda f: recovery.sweep_order(f.item)):
        if refires >= rules.refires_per_sweep:
            given.append(finding)
            continue
        ruling = recovery.decide(finding, now=now, rules=rules.of(finding.item.pipeline))
        if RecoveryAction.REFIRE not in (ruling.action, ruling.would):
            given.append(finding)
            continue
        obstacle = obstacles.of(finding.item)
        if obstacle is None:
            obstacles.take(finding.item)
            refires += 1
        given.append(replace(finding, obstacle=obstacle))
    return given


def stages_of(items: Iterable[Item]) -> set[StageKey]:
    """The stages that a sweep asks about."""
    return {(item.pipeline, item.stage) for item in items}

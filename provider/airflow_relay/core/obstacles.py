"""What stands in the way of refiring an item: the dispatcher's own gates, and slots, which may be few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from airflow_relay.core import dispatch, recovery
from airflow_relay.core.breaker import BreakerGate
from airflow_relay.core.capacity import Room
from airflow_relay.core.finding import Finding
from airflow_relay.core.item import Item
from airflow_relay.core.rules import RuleSet
from airflow_relay.core.snapshot import Group, Snapshot, StageKey
from airflow_relay.core.states import WaitReason


class Obstacles:
    """Gates and free capacity as a sweep's plan grows.

    :param snapshot: as the dispatcher sees it, its windows those of the stages that are asked about.
    """

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._room = Room(snapshot)
        self._gates: dict[tuple[StageKey, str], WaitReason | None] = {}
        self._probes: set[StageKey] = set()

    def gate(self, item: Item) -> WaitReason | None:
        """Why the item's stage may not be granted now, whatever is free; ``None`` when it may."""
        stage = (item.pipeline, item.stage)
        kind = (stage, item.dag_id)
        if kind not in self._gates:
            self._gates[kind] = dispatch.gate(_group(item), self._snapshot, self._now)
        return WaitReason.BREAKER if stage in self._probes else self._gates[kind]

    def has_room(self, item: Item) -> bool:
        """Whether every key that the item needs has a free unit."""
        return not (self._room.full or self._room.short(item.keys))

    def take(self, item: Item) -> None:
        """The item is going to be refired: its slots are taken, and so is its stage's place for a probe."""
        self._room.take(item.keys)
        stage = (item.pipeline, item.stage)
        if self._snapshot.breakers.get(stage) is BreakerGate.PROBE:
            self._probes.add(stage)


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
    """Tell what is to be refired, and may not be, what stands in its way.

    The places of a sweep go to items that find a free slot, in the order of the sweep. What is left of them
    goes to items whose stage is full: they become ready and queue for the dispatcher, and the attempt is
    charged at the grant. If they had to find a slot free at the moment of a sweep, a stage that is always
    full would never see them again.

    :param snapshot: as for :class:`Obstacles`.
    """
    obstacles = Obstacles(snapshot, now)
    given: list[Finding] = []
    without_slot: list[int] = []
    places = rules.refires_per_sweep
    for finding in sorted(findings, key=lambda f: recovery.sweep_order(f.item)):
        obstacle = None
        own = rules.of(finding.item.pipeline)
        if places > 0 and recovery.would_refire(finding, now=now, rules=own):
            obstacle = obstacles.gate(finding.item)
            if obstacle is None and obstacles.has_room(finding.item):
                obstacles.take(finding.item)
                places -= 1
            elif obstacle is None:
                obstacle = WaitReason.SLOT
                without_slot.append(len(given))
        given.append(finding if obstacle is None else replace(finding, obstacle=obstacle))
    for place in without_slot[:places]:
        given[place] = replace(given[place], obstacle=None)
    return given


def stages_of(items: Iterable[Item]) -> set[StageKey]:
    """The stages that a sweep asks about."""
    return {(item.pipeline, item.stage) for item in items}

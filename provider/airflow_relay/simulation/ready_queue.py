"""The ready items of a simulated ledger by group, so that a decision costs the same however many wait."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import islice

from airflow_relay.core.dispatch import order_key
from airflow_relay.core.item import Item
from airflow_relay.core.snapshot import Candidate, Group
from airflow_relay.simulation.values import changed

Kind = tuple[str, str]
"""(pipeline, stage): in a simulation a stage has one DAG, class, rank and set of keys."""


class _Waiting:
    """The ready items of one stage: by own priority, each list in the order of waiting."""

    def __init__(self, model: Candidate) -> None:
        self.model = model
        model.kind  # noqa: B018 - worked out here, it is copied with the fields
        self._group = Group(
            pipeline=model.pipeline,
            stage=model.stage,
            dag_id=model.dag_id,
            klass=model.klass,
            rank=model.rank,
            keys=model.keys,
            count=0,
            oldest=model.ready_since,
        )
        self._group.kind  # noqa: B018 - as above
        self.by_priority: dict[int, deque[Candidate]] = {}
        self.count = 0

    def add(self, candidate: Candidate) -> None:
        line = self.by_priority.get(candidate.priority)
        if line is None:
            line = self.by_priority[candidate.priority] = deque()
        if line and _since(candidate) < _since(line[-1]):
            ordered = list(line)
            insort(ordered, candidate, key=_since)
            line.clear()
            line.extend(ordered)
        else:
            line.append(candidate)
        self.count += 1

    def take(self, candidate: Candidate) -> None:
        line = self.by_priority[candidate.priority]
        if line[0] is candidate:
            line.popleft()
        else:
            line.remove(candidate)
        self.count -= 1

    def first(self, number: int, now: datetime) -> Iterable[Candidate]:
        lines = [line for line in self.by_priority.values() if line]
        if len(lines) == 1:
            return islice(lines[0], number)
        return islice(merge(*lines, key=lambda c: order_key(c, now)), number)

    def oldest(self) -> datetime:
        """Since when the one that waits longest waits."""
        if len(self.by_priority) == 1:
            (line,) = self.by_priority.values()
            return line[0].ready_since
        return min(line[0].ready_since for line in self.by_priority.values() if line)

    def group(self) -> Group:
        return changed(self._group, count=self.count, oldest=self.oldest())


def _candidate(item: Item, since: datetime) -> Candidate:
    return Candidate(
        item_id=item.id,
        pipeline=item.pipeline,
        stage=item.stage,
        dag_id=item.dag_id,
        klass=item.klass,
        rank=item.rank,
        priority=item.priority,
        keys=item.keys,
        ready_since=since,
    )


def _since(candidate: Candidate) -> tuple[datetime, int]:
    return candidate.ready_since, candidate.item_id


class ReadyQueue:
    """What the ledger's queries over ready items answer, without reading all of them."""

    def __init__(self) -> None:
        self._stages: dict[Kind, _Waiting] = {}
        self._candidates: dict[int, Candidate] = {}

    def __len__(self) -> int:
        return len(self._candidates)

    def __contains__(self, item_id: int) -> bool:
        return item_id in self._candidates

    def add(self, item: Item) -> None:
        """An item has become ready."""
        since = item.ready_since or item.last_activity_at
        kind = (item.pipeline, item.stage)
        waiting = self._stages.get(kind)
        if waiting is None:
            waiting = self._stages[kind] = _Waiting(_candidate(item, since))
            self._stages = dict(sorted(self._stages.items()))
        candidate = changed(waiting.model, item_id=item.id, priority=item.priority, ready_since=since)
        waiting.add(candidate)
        self._candidates[item.id] = candidate

    def remove(self, item_id: int) -> None:
        """An item was granted, or taken out."""
        candidate = self._candidates.pop(item_id)
        self._stages[(candidate.pipeline, candidate.stage)].take(candidate)

    def groups(self) -> list[Group]:
        """Stages with ready items, in order."""
        return [w.group() for w in self._stages.values() if w.count]

    def first(self, group: Group, number: int, now: datetime) -> Iterable[Candidate]:
        """The first items of a group in the order of the rules."""
        return self._stages[(group.pipeline, group.stage)].first(number, now)

    def counts(self) -> Iterator[tuple[Kind, int]]:
        """Stage → ready items, those without any left out."""
        return ((kind, w.count) for kind, w in self._stages.items() if w.count)

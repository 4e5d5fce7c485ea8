"""How a stage's run ended, read from the states of its tasks: one rule for hand-off and reconciliation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_relay.core.states import RunResult

SKIPPED_OUTCOME: Final = "skipped"
"""The outcome of a router whose work was skipped; its route table may name it."""

LONGEST_OUTCOME: Final = 200
"""Characters; the width of the ledger's columns."""

HAND_OFF_TASK_ID: Final = "hand_off"

FAILED_STATES: Final = frozenset({"failed", "upstream_failed"})
SKIPPED_STATES: Final = frozenset({"skipped", "removed"})
ENDED_STATES: Final = FAILED_STATES | SKIPPED_STATES | {"success"}
"""Airflow task states in which nothing more happens by itself."""


@dataclass(frozen=True)
class StageShape:
    """What the tasks of a stage's DAG are to its hand-off.

    :param work: task ids of the body, setups and teardowns aside: one of them failed means the stage failed.
    :param ends: those that no other work follows: all of them skipped means the stage was skipped.
    :param result_task_id: the task whose return value is the stage's result.
    """

    work: tuple[str, ...]
    ends: tuple[str, ...]
    result_task_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON for the run row."""
        return {"work": list(self.work), "ends": list(self.ends), "result": self.result_task_id}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StageShape:
        """The inverse of :meth:`to_json`."""
        return cls(tuple(data["work"]), tuple(data["ends"]), data["result"])

    @classmethod
    def unknown(cls, states: Mapping[str, Any]) -> StageShape:
        """For a run of which no task was guarded: every task but the hand-off is work."""
        tasks = tuple(name for name in states if name != HAND_OFF_TASK_ID)
        return cls(tasks, tasks)


@dataclass(frozen=True)
class Completion:
    """What a stage's run ended with."""

    result: RunResult
    outcome: str | None = None
    error_class: str | None = None
    error_reason: str | None = None


def has_ended(states: Mapping[str, Any]) -> bool:
    """Whether every task of the run is in a final state, the hand-off included."""
    return bool(states) and all(str(state) in ENDED_STATES for state in states.values())


def completion_of(states: Mapping[str, Any], shape: StageShape) -> Completion:
    """Read a run's task states (task or ``<task>_<map index>`` → state); the outcome is not in them.

    A failed task fails the stage even if a task behind it ran all the same (``all_done``): a clean-up must
    not hide a failure. Teardowns are not work, so theirs do not count.
    """
    failed = [name for name, state in _of(states, shape.work) if state in FAILED_STATES]
    if failed:
        reason = f"no error was reported; failed tasks: {', '.join(failed)}"
        return Completion(RunResult.FAILED, error_reason=reason)
    ends = [state for _, state in _of(states, shape.ends)]
    if ends and all(state in SKIPPED_STATES for state in ends):
        return Completion(RunResult.SKIPPED)
    return Completion(RunResult.SUCCESS)


def outcome_of(value: Any, field: str) -> str | None:
    """The outcome in a router's return value.

    :param value: the text itself, or a mapping.
    :param field: dotted path into the mapping.
    """
    for name in field.split(".") if isinstance(value, Mapping) else ():
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        return None
    # It may be an agent's own word: no table names one that the ledger could not store.
    return value.encode("utf-8", "replace").decode().replace("\0", "")[:LONGEST_OUTCOME]


def _of(states: Mapping[str, Any], task_ids: Collection[str]) -> list[tuple[str, str]]:
    wanted = set(task_ids)
    return [
        (name, str(state))
        for name, state in states.items()
        if name in wanted or (name.rpartition("_")[0] in wanted and name.rpartition("_")[2].isdigit())
    ]

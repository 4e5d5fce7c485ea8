"""The words that items, runs, grants and events are described with."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ItemState(str, Enum):
    """Where an item stands. Each state but the final ones names who will move the item on."""

    READY = "ready"  # waits for a grant: the dispatcher moves it
    GRANTED = "granted"  # a run was requested: the outbox or the guard moves it
    RUNNING = "running"  # a guarded task has started: hand_off or reconciliation moves it
    FAILED = "failed"  # the stage failed, retryable: the recovery sweep moves it
    DEAD = "dead"  # automation has given up: a person moves it
    DONE = "done"
    DISCARDED = "discarded"


FINISHED: Final = frozenset({ItemState.DONE, ItemState.DISCARDED})
"""Nothing will or should move these on."""

TERMINAL: Final = FINISHED | {ItemState.DEAD}
"""No automatic step follows: what a run of the whole pipeline waits for."""

IN_FLIGHT: Final = frozenset({ItemState.GRANTED, ItemState.RUNNING})
"""A run of the item holds slots."""

WORK_IN_PROGRESS: Final = IN_FLIGHT | {ItemState.READY}
"""Counts for the intake's backpressure (failed and dead items do not)."""


class RunState(str, Enum):
    """The state of a run row: one grant of one stage to one item."""

    OPEN = "open"  # holds its slots
    CLOSED = "closed"  # handed off; the outcome is recorded
    SUPERSEDED = "superseded"  # a newer grant took over


class RunResult(str, Enum):
    """How a closed run ended."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"  # every leaf of the body was skipped: handed off by the default route
    LOST = "lost"  # Airflow no longer knows the run, or it died without telling
    WITHDRAWN = "withdrawn"  # never started, taken back by the tick


class PriorityClass(str, Enum):
    """Classes in order; the names follow the operating-system scheduler of the second source document."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


class WaitReason(str, Enum):
    """Why a ready item has no grant yet. Derived by the dispatcher, never stored."""

    SLOT = "slot"
    BREAKER = "breaker"
    PAUSED = "paused"
    HOLD = "hold"
    IDLE = "idle"
    BUDGET = "budget"
    NOT_BEFORE = "not_before"
    NEXT = "next"  # nothing stands in the way: the next dispatch grants it


class EventKind(str, Enum):
    """What a line of an item's activity log tells."""

    REGISTERED = "registered"
    READY = "ready"
    GRANTED = "granted"
    CONFIRMED = "confirmed"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    ERROR_RECORDED = "error_recorded"
    REOPENED = "reopened"
    REWOUND = "rewound"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"
    RECOVERED = "recovered"
    RECOVERY_SKIPPED = "recovery_skipped"
    DEAD_LETTERED = "dead_lettered"
    REDRIVEN = "redriven"
    STAGE_SKIPPED = "stage_skipped"
    DISCARDED = "discarded"
    MOVED = "moved"
    JOB = "job"
    NOTE = "note"
    SNAPSHOT = "snapshot"


AIRFLOW_RUNS_KEY: Final = "airflow.runs"
"""Every run row holds one unit: it bounds the runs that Relay keeps RUNNING in Airflow."""

DEFAULT_AIRFLOW_RUNS: Final = 60

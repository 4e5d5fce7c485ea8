"""Why an intake does nothing on purpose, and when that has become a sign that people should look at.

An intake that adds new work to unfinished work makes both late. So it skips its cycle, and the skip is
counted with its reason. Single skips are the rule at work; climbing ones say that the work has grown too
heavy for the schedule, or that something is stuck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from airflow_relay.core.pipeline import Pipeline

WINDOW: Final = 6
"""Cycles that are compared with as many before them."""

CYCLES: Final = 2 * WINDOW + 1
"""Cycles that :func:`begins_to_climb` looks at."""

LEAST_SKIPS: Final = 3
"""Fewer skips in a window are chance, whatever went before."""


def must_wait(pipeline: Pipeline, in_progress: Mapping[str, int]) -> str | None:
    """Why new work would only pile up, or ``None`` when the intake may work.

    :param in_progress: stage → items that are ready or in flight; failed and dead items do not count.
    """
    entry = pipeline.entry.name
    waiting = in_progress.get(entry, 0)
    if waiting:
        items = (
            "1 item of an earlier intake is" if waiting == 1 else f"{waiting} items of an earlier intake are"
        )
        return f"{items} still in {entry}"
    total = sum(in_progress.values())
    if pipeline.max_in_progress is not None and total >= pipeline.max_in_progress:
        return f"{total} items are in progress, the limit is {pipeline.max_in_progress}"
    return None


def begins_to_climb(skipped: Sequence[bool]) -> bool:
    """Whether it is this cycle with which skips climb; they go on to do so without being told again.

    :param skipped: of the latest :data:`CYCLES` cycles, newest first, whether each did nothing.
    """
    return is_climbing(skipped) and not is_climbing(skipped[1:])


def is_climbing(skipped: Sequence[bool]) -> bool:
    """Whether the latest :data:`WINDOW` cycles skipped more often than those before, and not by chance."""
    recent, before = sum(skipped[:WINDOW]), sum(skipped[WINDOW : 2 * WINDOW])
    return recent >= LEAST_SKIPS and recent > before

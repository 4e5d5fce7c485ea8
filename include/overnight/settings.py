"""Times and output of the overnight run, from the environment, so that it can be tried in a minute."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FIRST_POLL_VARIABLE = "RELAY_OVERNIGHT_FIRST_POLL"
POLL_INTERVAL_VARIABLE = "RELAY_OVERNIGHT_POLL_INTERVAL"
CEILING_VARIABLE = "RELAY_OVERNIGHT_CEILING"
SCHEDULE_VARIABLE = "RELAY_OVERNIGHT_SCHEDULE"
OUTPUT_VARIABLE = "RELAY_OVERNIGHT_OUTPUT"
HOUR = 3600.0


@dataclass(frozen=True)
class Times:
    """The barrier's times, in seconds from the dispatch."""

    first_poll: float
    poll_interval: float
    ceiling: float


def times() -> Times:
    """``RELAY_OVERNIGHT_FIRST_POLL``, ``_POLL_INTERVAL`` and ``_CEILING`` in seconds; 3 h, 30 min and 14 h.

    Read when the DAG file is parsed, so the barrier refuses impossible ones there.
    """
    return Times(
        first_poll=_seconds(FIRST_POLL_VARIABLE, 3 * HOUR),
        poll_interval=_seconds(POLL_INTERVAL_VARIABLE, HOUR / 2),
        ceiling=_seconds(CEILING_VARIABLE, 14 * HOUR),
    )


def schedule() -> str | None:
    """``RELAY_OVERNIGHT_SCHEDULE``: a cron expression, by default 22:00 UTC; ``none`` for no schedule."""
    value = os.environ.get(SCHEDULE_VARIABLE) or "0 22 * * *"
    return None if value == "none" else value


def output_folder() -> Path:
    """Where reports and poll logs go: ``RELAY_OVERNIGHT_OUTPUT``, else ``$AIRFLOW_HOME/overnight``."""
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    return Path(os.environ.get(OUTPUT_VARIABLE) or home / "overnight").expanduser().absolute()


def _seconds(variable: str, default: float) -> float:
    value = os.environ.get(variable)
    if not value:
        return default
    try:
        return float(value)
    except ValueError as error:
        raise ValueError(f"{variable}={value!r} is no number of seconds.") from error

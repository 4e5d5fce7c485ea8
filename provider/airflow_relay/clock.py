"""The wall clock of the Airflow ring: aware UTC, and the one place where tests shift time."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Final

TEST_MODE_VARIABLE: Final = "RELAY_TEST_MODE"
OFFSET_VARIABLE: Final = "RELAY_CLOCK_OFFSET"


def test_switch(name: str) -> str | None:
    """The value of a switch that only tests may use.

    :raises RuntimeError: it is set outside tests, where it would quietly falsify a production ledger.
    """
    value = os.environ.get(name)
    if value and os.environ.get(TEST_MODE_VARIABLE) != "1":
        raise RuntimeError(f"{name} is set, but it is for tests only ({TEST_MODE_VARIABLE}=1): unset it.")
    return value or None


def utcnow() -> datetime:
    """Now, aware UTC; shifted by ``RELAY_CLOCK_OFFSET`` seconds in tests."""
    offset = test_switch(OFFSET_VARIABLE)
    now = datetime.now(timezone.utc)
    return now if offset is None else now + timedelta(seconds=float(offset))


def airflow_time(instant: datetime) -> datetime:
    """The instant on Airflow's own clock, which knows nothing of ``RELAY_CLOCK_OFFSET``: for what it is to do
    later.
    """
    offset = test_switch(OFFSET_VARIABLE)
    return instant if offset is None else instant - timedelta(seconds=float(offset))

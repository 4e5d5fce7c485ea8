"""When an intake skips its cycle, and when skips climb."""

from __future__ import annotations

import pytest

from airflow_relay.core.backpressure import begins_to_climb, must_wait
from airflow_relay.core.pipeline import Pipeline, Stage

PIPELINE = Pipeline(
    "p", [Stage("first", to="second", schedule="0 7 * * *"), Stage("second")], max_in_progress=5
)


@pytest.mark.parametrize(
    ("in_progress", "reason"),
    [
        ({}, None),
        ({"second": 4}, None),
        ({"first": 1}, "1 item of an earlier intake is still in first"),
        ({"first": 3, "second": 9}, "3 items of an earlier intake are still in first"),
        ({"second": 5}, "5 items are in progress, the limit is 5"),
    ],
)
def test_an_intake_waits_for_the_entry_stage_and_for_the_limit(in_progress, reason):
    assert must_wait(PIPELINE, in_progress) == reason


def alerts_of(history: str) -> list[int]:
    """Cycles (from 1, in time order) with which skips begin to climb; ``s`` is a skipped cycle."""
    return [
        n
        for n in range(1, len(history) + 1)
        if begins_to_climb([cycle == "s" for cycle in reversed(history[:n])])
    ]


@pytest.mark.parametrize(
    ("history", "cycles"),
    [
        ("wwswwswwsww", []),
        ("ss", []),
        ("sss", [3]),
        ("ssssssssssssssss", [3]),
        ("wwwwwwswswswswsw", [11]),
        ("sssssswwwwwwwwwsss", [3, 18]),
    ],
)
def test_skips_climb_once_until_they_have_fallen(history, cycles):
    assert alerts_of(history) == cycles

"""Daily windows by the wall clock of the pipeline, also on the days on which clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given

from airflow_relay.core.pipeline import Window
from airflow_relay.core.windows import closed_until, is_open, next_opening

BERLIN = "Europe/Berlin"
MORNING = Window(start="06:00", end="08:30")
NIGHT = Window(start="22:00", end="02:00")


def at(text: str, zone: str = BERLIN, fold: int = 0) -> datetime:
    """A wall-clock time as a UTC instant."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(timezone.utc)


@pytest.mark.parametrize(
    ("window", "clock", "expected"),
    [
        (MORNING, "05:59", False),
        (MORNING, "06:00", True),
        (MORNING, "08:29", True),
        (MORNING, "08:30", False),
        (NIGHT, "21:59", False),
        (NIGHT, "22:00", True),
        (NIGHT, "00:00", True),
        (NIGHT, "01:59", True),
        (NIGHT, "02:00", False),
        (Window(start="09:00", end="09:00"), "03:00", True),
    ],
)
def test_start_belongs_to_a_window_and_end_does_not(window, clock, expected):
    assert is_open(window, BERLIN, at(f"2026-06-01T{clock}")) is expected


def test_the_wall_clock_of_the_pipeline_decides_not_utc():
    assert is_open(MORNING, BERLIN, datetime(2026, 6, 1, 4, 30, tzinfo=timezone.utc))
    assert not is_open(MORNING, "UTC", datetime(2026, 6, 1, 4, 30, tzinfo=timezone.utc))


def test_a_stage_without_a_window_is_never_closed():
    assert closed_until(None, BERLIN, at("2026-06-01T03:00")) is None


def test_an_open_window_is_not_closed():
    assert closed_until(MORNING, BERLIN, at("2026-06-01T07:00")) is None


@pytest.mark.parametrize(
    ("window", "now", "opens"),
    [
        (MORNING, "2026-06-01T03:00", "2026-06-01T06:00"),
        (MORNING, "2026-06-01T08:30", "2026-06-02T06:00"),
        (MORNING, "2026-12-31T09:00", "2027-01-01T06:00"),
        (NIGHT, "2026-06-01T02:00", "2026-06-01T22:00"),
    ],
)
def test_a_closed_window_says_when_it_opens(window, now, opens):
    found = closed_until(window, BERLIN, at(now))
    assert found == at(opens)
    assert found.tzinfo is timezone.utc


class TestDaysOnWhichClocksChange:
    """Berlin: 02:00 jumps to 03:00 on 29 March 2026, 03:00 goes back to 02:00 on 25 October 2026."""

    def test_the_opening_stays_at_the_wall_clock_time(self):
        assert next_opening(MORNING, BERLIN, at("2026-03-28T09:00")) == at("2026-03-29T06:00")
        assert at("2026-03-29T06:00") - at("2026-03-28T06:00") == timedelta(hours=23)

    def test_a_window_that_the_jump_swallows_opens_the_next_day(self):
        window = Window(start="02:10", end="02:50")
        assert next_opening(window, BERLIN, at("2026-03-29T01:00")) == at("2026-03-30T02:10")

    def test_a_window_whose_start_the_jump_swallows_opens_that_day(self):
        window = Window(start="02:30", end="05:00")
        opens = next_opening(window, BERLIN, at("2026-03-29T01:00"))
        assert opens == at("2026-03-29T03:30")
        assert is_open(window, BERLIN, opens)

    def test_an_hour_that_comes_twice_opens_the_window_twice(self):
        window = Window(start="02:10", end="02:20")
        first = next_opening(window, BERLIN, at("2026-10-25T01:00"))
        second = next_opening(window, BERLIN, first + timedelta(minutes=15))
        assert second - first == timedelta(hours=1)


clock = st.times().map(lambda t: f"{t.hour:02}:{t.minute:02}")
moments = st.datetimes(
    datetime.fromisoformat("2025-01-01"),
    datetime.fromisoformat("2028-01-01"),
    timezones=st.just(timezone.utc),
)


@given(clock, clock, st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]), moments)
def test_the_time_told_is_ahead_within_two_days_and_really_open(start, end, zone, now):
    window = Window(start=start, end=end)
    until = closed_until(window, zone, now)
    if until is None:
        assert is_open(window, zone, now)
    else:
        assert not is_open(window, zone, now)
        assert now < until <= now + timedelta(days=2, hours=1)
        assert is_open(window, zone, until)

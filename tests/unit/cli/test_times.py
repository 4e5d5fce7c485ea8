from __future__ import annotations

import argparse
from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.cli.times import parse_moment, parse_span

NOW = datetime(2026, 3, 2, 15, 30, 20, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("20m", timedelta(minutes=20)),
        ("20 min", timedelta(minutes=20)),
        ("3h", timedelta(hours=3)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5h", timedelta(hours=1, minutes=30)),
        ("7d", timedelta(days=7)),
        ("2W", timedelta(weeks=2)),
    ],
)
def test_spans_as_people_type_them(text, span):
    assert parse_span(text) == span


@pytest.mark.parametrize(
    "text", ["", "3", "h", "3x", "-3h", "0m", "3h!", "three hours", "9" * 40 + "d", "99999999d"]
)
def test_what_is_no_span_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parse_span(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T06:00Z", datetime(2026, 3, 1, 6, tzinfo=timezone.utc)),
        ("2026-03-01T06:00:00+02:00", datetime(2026, 3, 1, 4, tzinfo=timezone.utc)),
        ("2026-03-01T06:00", datetime(2026, 3, 1, 6, tzinfo=timezone.utc)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=timezone.utc)),
        ("09:00", datetime(2026, 3, 2, 9, tzinfo=timezone.utc)),
        ("2h", NOW - timedelta(hours=2)),
        ("7d", NOW - timedelta(days=7)),
    ],
)
def test_moments_as_people_type_them(text, moment):
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "25:00",
        "09:60",
        "2026-13-01",
        "2026-03-01T",
        "7",
        "0h",
        "99999999d",
        "0001-01-01T00:00+14:00",
    ],
)
def test_what_is_no_moment_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="time"):
        parse_moment(text, NOW)

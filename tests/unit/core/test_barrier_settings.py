from __future__ import annotations

import math
from datetime import timedelta

import pytest

from airflow_relay.core.barrier import (
    MAX_DURATION,
    BarrierSettings,
    BarrierSettingsError,
    Track,
    check_tracks,
)

DEFAULTS = BarrierSettings()
A = Track("track_a")


def hours(number):
    return timedelta(hours=number)


def test_defaults_are_the_documents():
    assert (DEFAULTS.first_poll, DEFAULTS.poll_interval, DEFAULTS.ceiling) == (
        hours(3),
        timedelta(minutes=30),
        hours(14),
    )


def test_plain_numbers_are_seconds():
    assert BarrierSettings(first_poll=15, poll_interval=10.0, ceiling=90) == BarrierSettings(
        first_poll=timedelta(seconds=15), poll_interval=timedelta(seconds=10), ceiling=timedelta(seconds=90)
    )


BAD_ANYWHERE = [
    math.nan, math.inf, -math.inf, -1, -0.5, timedelta(seconds=-1), timedelta.min, timedelta.max,
    MAX_DURATION + timedelta(microseconds=1), 10**400, 1e300, "30 min", None, True,
]  # fmt: skip


@pytest.mark.parametrize("name", ["first_poll", "poll_interval", "ceiling"])
@pytest.mark.parametrize("value", BAD_ANYWHERE, ids=lambda value: str(value)[:20])
def test_impossible_durations_are_refused_by_name(name, value):
    with pytest.raises(BarrierSettingsError, match=f"^{name}: ") as caught:
        BarrierSettings(**{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("given_settings", "name"),
    [
        ({"poll_interval": 0}, "poll_interval"),
        ({"poll_interval": 0.5}, "poll_interval"),
        ({"ceiling": 0, "first_poll": 0}, "ceiling"),
        ({"first_poll": hours(14.01)}, "first_poll"),
        ({"ceiling": hours(2)}, "first_poll"),
    ],
)
def test_contradicting_settings_are_refused_by_name(given_settings, name):
    with pytest.raises(BarrierSettingsError, match=f"^{name}: "):
        BarrierSettings(**given_settings)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        DEFAULTS.ceiling = hours(99)


@pytest.mark.parametrize(
    ("tracks", "message"),
    [
        ((A, A), "'track_a' is listed twice"),
        ((Track(""),), "a name has 1 to 200 characters"),
        ((Track("x" * 201),), "a name has 1 to 200 characters"),
        ((Track("slow", max_wallclock="1h"),), "max_wallclock of track 'slow'"),
        ((Track("slow", max_wallclock=hours(15)),), "max_wallclock of track 'slow': .* ceiling"),
        ((Track("slow", max_wallclock=timedelta(0)),), "max_wallclock of track 'slow'"),
        ((Track("slow", max_wallclock=hours(-1)),), "max_wallclock of track 'slow'"),
        ((Track("slow", max_wallclock=math.nan),), "max_wallclock of track 'slow'"),
    ],
)
def test_contradicting_tracks_are_refused_by_name(tracks, message):
    with pytest.raises(BarrierSettingsError, match=message):
        check_tracks(tracks, DEFAULTS)


def test_sound_tracks_are_accepted():
    check_tracks(
        (A, Track("track_b", max_wallclock=hours(14)), Track("track_c", max_wallclock=3600)), DEFAULTS
    )

"""The rhythm of polls, as properties."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.triggers.pacing import JITTER, MAX_BACKOFF, Pace

NOW = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
SECONDS = st.floats(0.01, 3600)
HINTS = st.none() | st.floats(0, 7200)
SPREAD = st.floats(0, 1)


def pace(interval, spread=0.0, left=10**6, patience=900):
    return Pace(interval, NOW + timedelta(seconds=left), timedelta(seconds=patience), lambda: spread)


@given(SECONDS, HINTS, SPREAD)
def test_a_poll_is_never_sooner_than_asked_and_not_much_later(interval, hint, spread):
    for wait in (pace(interval, spread).first(NOW, hint), pace(interval, spread).after_failure(NOW, hint)):
        asked = max(interval, hint or 0)
        assert asked <= wait <= asked * (1 + JITTER)


@given(SECONDS, HINTS, SPREAD, st.floats(-60, 20_000))
def test_a_trigger_that_is_taken_over_waits_what_is_left_and_an_old_one_any_part_of_an_interval(
    interval, hint, spread, age
):
    since, asked = NOW - timedelta(seconds=age), max(interval, hint or 0)
    wait = pace(interval, spread).first(NOW, hint, since)
    if (NOW - since).total_seconds() >= asked:
        assert wait == interval * spread
    else:
        # A clock that is behind the worker's makes nobody wait for longer than a fresh trigger does.
        left = min(asked, asked - (NOW - since).total_seconds())
        assert left <= wait <= left * (1 + JITTER)


@given(SECONDS, HINTS, SPREAD, st.integers(0, 100))
def test_no_wait_goes_past_the_deadline(interval, hint, spread, left):
    made = pace(interval, spread, left)
    waits = (made.first(NOW, hint), made.after_answer(NOW, hint), made.after_failure(NOW, hint))
    assert all(0 <= wait <= left for wait in waits)


@given(SECONDS, st.integers(1, 50))
def test_failures_slow_polls_down_up_to_a_bound_and_an_answer_resets_that(interval, failures):
    made = pace(interval)
    waits = [made.after_failure(NOW) for _ in range(failures)]
    assert waits == sorted(waits)
    assert waits[-1] <= interval * MAX_BACKOFF
    assert made.after_answer(NOW) == interval
    assert made.after_failure(NOW) == interval


@given(st.integers(1, 3600))
def test_contact_is_lost_after_the_set_time_without_an_answer_and_not_before(patience):
    made = pace(1, patience=patience)
    assert made.after_failure(NOW) is not None
    assert made.after_failure(NOW + timedelta(seconds=patience - 0.5)) is not None
    assert made.after_failure(NOW + timedelta(seconds=patience)) is None


def test_a_server_that_says_ask_again_now_is_asked_sooner_than_the_interval():
    assert 0 < pace(30).after_answer(NOW, 0) < 1
    assert pace(30).after_answer(NOW, 5) == 30
    assert pace(30).after_answer(NOW, 45) == 45

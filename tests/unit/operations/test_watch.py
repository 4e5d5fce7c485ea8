"""Watching the watcher: age → status, sentence, exit code."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.core.watch import MAX_AGE, SWEEP, TICK, Health, report, span, unreadable, watch

NOW = datetime(2026, 3, 8, 12, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=30)


def fresh() -> dict[str, datetime | None]:
    return {SWEEP: NOW - timedelta(hours=1), TICK: NOW - timedelta(minutes=4)}


def test_fresh_heartbeats_are_ok():
    found = report(fresh(), now=NOW, first_work=LONG_AGO)
    assert (found.ok, found.exit_code, found.http_status) == (True, 0, 200)
    assert "last ran 60 min ago" in found.sentence


@pytest.mark.parametrize("name", [SWEEP, TICK])
def test_either_heartbeat_too_old_is_an_alarm_that_says_which_and_what_to_check(name):
    beats = {**fresh(), name: NOW - MAX_AGE[name] - timedelta(seconds=1)}
    found = report(beats, now=NOW, first_work=LONG_AGO)
    assert (found.ok, found.exit_code, found.http_status) == (False, 1, 503)
    assert found.health is Health.LATE
    dag = {SWEEP: "relay__recovery", TICK: "relay__dispatch"}[name]
    assert dag in found.sentence
    assert "unpaused" in found.sentence


def test_at_its_age_limit_a_heartbeat_is_still_good():
    assert watch(SWEEP, NOW - timedelta(hours=3), now=NOW, max_age=timedelta(hours=3)).health is Health.OK


def test_a_heartbeat_that_never_came_is_an_alarm_once_there_was_work_for_long():
    found = report({}, now=NOW, first_work=NOW - timedelta(hours=4))
    assert found.health is Health.NEVER
    assert found.exit_code == 1
    assert "has never run" in found.sentence


@pytest.mark.parametrize("first_work", [None, NOW - timedelta(minutes=5)])
def test_a_new_deployment_is_no_alarm(first_work):
    found = report({}, now=NOW, first_work=first_work)
    assert found.ok
    assert "has not run yet" in found.sentence


def test_a_clock_set_back_is_no_alarm():
    found = watch(TICK, NOW + timedelta(hours=1), now=NOW, max_age=timedelta(minutes=20))
    assert (found.health, found.age) == (Health.OK, timedelta(0))


def test_an_unreadable_ledger_is_the_worst_of_all_and_a_problem_of_the_environment():
    found = unreadable("connection refused")
    assert (found.ok, found.exit_code, found.http_status) == (False, 2, 503)
    assert "connection refused" in found.sentence
    assert list(Health)[-1] is found.health


def test_the_public_route_tells_status_and_age_only():
    found = report({SWEEP: NOW - timedelta(hours=4), TICK: NOW}, now=NOW, first_work=LONG_AGO)
    assert found.to_json() == {
        "status": "late",
        "sweep": {"status": "late", "age_s": 14400},
        "tick": {"status": "ok", "age_s": 0},
    }
    assert unreadable("password=hunter2").to_json() == {"status": "unreadable"}


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(seconds=40), "40 s"),
        (timedelta(minutes=20), "20 min"),
        (timedelta(hours=3), "3 h"),
        (timedelta(hours=3, minutes=30), "3.5 h"),
        (timedelta(days=4), "4 days"),
    ],
)
def test_lengths_are_said_as_people_say_them(length, words):
    assert span(length) == words

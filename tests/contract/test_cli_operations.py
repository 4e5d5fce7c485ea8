"""Dead letters, breakers, holds, status, check-recovery, classify-errors, tracks and init by command."""

from __future__ import annotations

import io
import json
import sys
from datetime import timedelta

import pytest

from airflow_relay.clock import utcnow
from airflow_relay.core.limits import Adaptive, Outcome
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.core.watch import SWEEP, TICK
from airflow_relay.ledger import governing, registering
from support.cli import relay
from support.pipelines import Driver, line


@pytest.fixture(autouse=True)
def its_ledger(ledger, monkeypatch):
    monkeypatch.setattr("airflow_relay.hooks.ledger.get_ledger", lambda: ledger)
    monkeypatch.setattr("airflow_relay.hooks.ledger.ledger_source", lambda: "the ledger of this test")
    monkeypatch.setattr("airflow_relay.metadata.why_unreachable", lambda: "no such table: dag")
    return ledger


@pytest.fixture
def now_drive(ledger):
    driver = Driver(ledger, line())
    driver.now = utcnow() - timedelta(minutes=30)
    return driver


def dead(drive, *keys, error="auth"):
    for run in drive.intake(*keys):
        drive.ledger.confirm([run.id], drive.now)
        drive.guard(run)
        drive.end(run, result=RunResult.FAILED, error=error)


# Dead letters


def test_dead_letters_are_listed_and_filtered(now_drive):
    dead(now_drive, "a", "b")
    dead(now_drive, "c", error="content_policy")
    keys = lambda *argv: sorted(r["item"] for r in relay("dead-letters", "-o", "json", *argv).json)  # noqa: E731
    assert keys() == keys("list") == ["a", "b", "c"]
    assert keys("list", "--error-class", "auth") == ["a", "b"]
    assert keys("list", "--since", "10m") == []
    assert keys("list", "--before", "10m", "--item", "c") == ["c"]
    assert keys("list", "--stage", "second") == []


def test_all_auth_failures_since_then_are_redriven_by_one_command(now_drive):
    dead(now_drive, "a", "b")
    dead(now_drive, "c", error="content_policy")
    answer = relay("dead-letters", "redrive", "--error-class", "auth", "--since", "2h", "-o", "json")
    assert (answer.code, answer.json["changed"]) == (0, 2)
    assert [now_drive.item(k).state for k in "abc"] == [ItemState.READY, ItemState.READY, ItemState.DEAD]
    again = relay("dead-letters", "redrive", "--error-class", "auth", "--since", "2h", "-o", "json")
    assert (again.code, again.json["changed"]) == (0, 0)


@pytest.mark.parametrize("action", ["redrive", "skip", "discard"])
def test_a_bulk_action_without_any_filter_asks_whether_all_are_meant(now_drive, action):
    dead(now_drive, "a")
    answer = relay("dead-letters", action)
    assert answer.code == 2
    assert "--all" in answer.err
    assert now_drive.item("a").state is ItemState.DEAD
    assert relay("dead-letters", action, "--all", "-o", "json").json["changed"] == 1


def test_an_option_that_the_action_would_ignore_is_refused(now_drive):
    dead(now_drive, "a")
    answer = relay("dead-letters", "skip", "--item", "a", "--fresh")
    assert answer.code == 2
    assert "--fresh belongs to dead-letters redrive" in answer.err
    assert now_drive.item("a").state is ItemState.DEAD


def test_decided_letters_are_listed_with_who_decided(now_drive):
    dead(now_drive, "a")
    relay("dead-letters", "discard", "--item", "a", "--reason", "no use")
    (row,) = relay("dead-letters", "--resolved", "-o", "json").json
    assert row["resolution"] == "discarded"
    assert row["resolved_by"].endswith("(command line)")


def test_a_time_that_cannot_be_read_is_a_usage_error(now_drive):
    answer = relay("dead-letters", "--since", "yesterday")
    assert answer.code == 2
    assert "'yesterday' is no time" in answer.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ("dead-letters", "redrive", "--error-class", "authentication"),
            "--error-class authentication: give one",
        ),
        (("dead-letters", "-p", "lime"), "No pipeline 'lime' is declared. Declared: line"),
        (("items", "-p", "lime"), "No pipeline 'lime' is declared"),
        (("breakers", "list", "lime.first"), "No pipeline 'lime' is declared"),
        (("show", "no text \udcff"), "is no valid UTF-8"),
    ],
)
def test_a_filter_that_can_match_nothing_is_a_mistake_and_no_empty_answer(now_drive, argv, says):
    now_drive.intake("a")
    answer = relay(*argv)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


# Breakers and holds


def test_a_breaker_is_opened_listed_and_closed(now_drive):
    now_drive.intake("a")
    assert (
        relay("breakers", "open", "line.second", "--reason", "vendor down", "-o", "json").json["changed"] == 1
    )
    (row,) = relay("breakers", "-o", "json").json
    assert (row["stage"], row["state"]) == ("line.second", "open")
    assert "vendor down" in row["reason"]
    assert relay("breakers", "close", "line.second", "-o", "json").json["changed"] == 1
    assert relay("breakers", "close", "line.second", "-o", "json").json["changed"] == 0


def test_a_breaker_needs_a_stage_that_is_there(now_drive):
    now_drive.intake("a")
    assert relay("breakers", "open").code == 2
    answer = relay("breakers", "open", "line.nth")
    assert answer.code == 2
    assert "no stage 'nth'" in answer.err


def test_a_hold_is_set_listed_and_released(now_drive):
    now_drive.intake("a")
    assert relay("hold", "P2", "--for", "20m", "--reason", "vacation").code == 0
    (row,) = relay("hold", "-o", "json").json
    assert (row["scope"], row["reason"]) == ("P2", "vacation")
    assert row["until"] > utcnow().isoformat()
    assert relay("release", "P2").code == 0
    assert relay("release", "P2").code == 1
    assert relay("hold", "-o", "json").json == []


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("hold", "P2"), 2),  # no reason
        (("hold", "P2", "--reason", " "), 2),
        (("hold", "P2", "--reason", "no text \udcff"), 2),
        (("hold", "P2", "--reason", "x", "--until", "9999-12-31T23:59-12:00"), 2),
        (("hold", "P7", "--reason", "x"), 1),
        (("hold", "P2", "--reason", "x", "--for", "1h", "--until", "2h"), 2),
        (("hold", "--reason", "x"), 2),
    ],
)
def test_a_hold_that_makes_no_sense_is_refused(now_drive, argv, code):
    now_drive.intake("a")
    answer = relay(*argv)
    assert (answer.code, answer.out) == (code, "")
    with now_drive.ledger.read() as tx:
        assert governing.holds(tx, utcnow()) == {}


# Status


def test_status_has_figures_of_work_capacity_and_intakes(now_drive):
    (run, _) = now_drive.intake("a", "b")
    now_drive.later(seconds=3)
    now_drive.ledger.confirm([run.id], now_drive.now)
    now_drive.guard(run)
    now_drive.later(seconds=60)
    now_drive.end(run)
    with now_drive.ledger.write() as tx:
        registering.record_intake(tx, "line", now_drive.now, skipped_because="2 items are still in first")
    status = relay("status", "-o", "json").json
    stages = {row["stage"]: row for row in status["stages"]}
    assert stages["line.first"]["granted"] == 1
    assert (stages["line.first"]["mean_latency"], stages["line.first"]["mean_phase"]) == (3.0, 60.0)
    assert stages["line.first"]["dispatch_success"] == 1
    assert stages["line.second"]["granted"] == 1
    assert {row["key"]: row["used"] for row in status["capacity"]}["airflow.runs"] == 2
    (intake,) = status["intakes"]
    assert (intake["cycles"], intake["skipped"], intake["trend"]) == (2, 1, "rising")
    assert intake["reason"] == "2 items are still in first"
    assert {row["name"] for row in status["heartbeats"]} == {SWEEP, TICK}


def test_dispatch_success_counts_grants_that_never_began(now_drive):
    first, second = now_drive.intake("a", "b")
    now_drive.ledger.confirm([first.id], now_drive.now)
    now_drive.guard(first)
    now_drive.end(second, result=RunResult.LOST)
    status = relay("status", "-o", "json").json
    assert {r["stage"]: r.get("dispatch_success") for r in status["stages"]}["line.first"] == 0.5


def test_status_shows_where_an_adaptive_limit_stands_and_why(now_drive, monkeypatch):
    rules = {"agents": Adaptive(start=4, min=1, max=8)}
    monkeypatch.setattr(
        "airflow_relay.cli.status.known_conditions", lambda _ledger, _now: Conditions(adaptive=rules)
    )
    limited = Outcome(at=now_drive.now, error_class="rate_limit")
    with now_drive.ledger.dispatcher() as tx:
        for _ in range(2):  # one alone may be chance
            governing.adapt_limits(tx, rules, ["agents"], limited, now_drive.now)
    (row,) = relay("status", "-o", "json").json["adaptive"]
    assert (row["key"], row["limit"], row["min"], row["max"]) == ("agents", 2, 1, 8)
    assert row["why"].startswith("4 to 2: 2 rate-limit")
    assert "Adaptive limits" in relay("status").out


def test_status_of_an_empty_ledger_is_an_answer(ledger):
    assert relay("status").code == 0
    assert relay("status", "-o", "json").json["stages"] == []


# check-recovery


def beat(ledger, **ages):
    with ledger.write() as tx:
        for name, age in ages.items():
            governing.beat(tx, name, utcnow() - age)


def test_check_recovery_is_0_when_sweep_and_tick_are_young(now_drive, ledger):
    now_drive.intake("a")
    beat(ledger, **{SWEEP: timedelta(minutes=90), TICK: timedelta(minutes=2)})
    assert relay("check-recovery", "--max-age", "3h").code == 0


def test_check_recovery_is_1_when_the_sweep_is_too_old(ledger):
    beat(ledger, **{SWEEP: timedelta(minutes=90), TICK: timedelta(minutes=2)})
    answer = relay("check-recovery", "--max-age", "1h", "-o", "json")
    assert answer.code == 1
    assert answer.json["status"] == "late"
    assert "recovery sweep" in answer.err


def test_check_recovery_is_2_when_the_ledger_cannot_be_read(monkeypatch):
    from airflow_relay.ledger.store import Ledger
    from support.pipelines import MemoryObjects

    broken = Ledger("postgresql+psycopg2://relay:s3cret@127.0.0.1:1/none", MemoryObjects())
    monkeypatch.setattr("airflow_relay.hooks.ledger.get_ledger", lambda: broken)
    answer = relay("check-recovery")
    assert answer.code == 2
    assert "s3cret" not in answer.out + answer.err
    other = relay("items")
    assert (other.code, other.out) == (2, "")
    assert "s3cret" not in other.err


# The others


def feed(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_classify_errors_writes_one_verdict_a_line(monkeypatch):
    feed(monkeypatch, '{"status": 429, "headers": {"retry-after": "7"}}\n\n{"status": 401}\nnonsense\n')
    answer = relay("classify-errors")
    verdicts = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 0
    assert [v["error_class"] for v in verdicts] == ["rate_limit", "auth", "unknown"]
    assert verdicts[0]["retry_after"] == 7
    assert set(verdicts[0]) == {"error_class", "retryable", "retry_after", "reason"}


def test_classify_errors_needs_no_ledger(monkeypatch):
    def refuse():
        raise AssertionError("it asked for a ledger")

    monkeypatch.setattr("airflow_relay.hooks.ledger.get_ledger", refuse)
    feed(monkeypatch, '{"status": 500}')
    assert relay("classify-errors").code == 0
    feed(monkeypatch, '{"status": 500}')
    assert "server_error" in relay("classify-errors", "-o", "table").out


def test_tracks_advise_needs_runs(ledger):
    answer = relay("tracks", "advise", "overnight")
    assert answer.code == 1
    assert "'overnight'" in answer.err


def test_init_is_safe_to_run_again(ledger):
    answer = relay("init", "-o", "json")
    assert answer.json["identity"] == ledger.ledger_id
    assert relay("init", "-o", "json").json == answer.json


def test_dispatch_without_airflows_database_grants_nothing(now_drive):
    now_drive.ledger.register_one(now_drive.pipeline, "a", None, now_drive.now)
    answer = relay("dispatch")
    assert answer.code == 2
    assert "Airflow's database does not answer" in answer.err
    assert now_drive.item("a").state is ItemState.READY

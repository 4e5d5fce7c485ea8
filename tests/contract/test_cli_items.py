"""``airflow relay items | show | log`` and the actions on items, on a ledger of either kind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_relay.clock import utcnow
from airflow_relay.core.limits import Hold
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.ledger import governing, jobs
from airflow_relay.ledger.jobs import JobEnd, JobPhase, JobPlace
from support.cli import relay
from support.pipelines import Driver, line


@pytest.fixture(autouse=True)
def its_ledger(ledger, monkeypatch):
    """Commands resolve this ledger. There is no Airflow database behind them: they say so and go on."""
    monkeypatch.setattr("airflow_relay.hooks.ledger.get_ledger", lambda: ledger)
    monkeypatch.setattr("airflow_relay.hooks.ledger.ledger_source", lambda: "the ledger of this test")
    monkeypatch.setattr("airflow_relay.metadata.why_unreachable", lambda: "no such table: dag")
    return ledger


@pytest.fixture
def now_drive(ledger):
    """Three items that began half an hour ago, with one slot at the first stage."""
    driver = Driver(ledger, line(first=1))
    driver.now = utcnow() - timedelta(minutes=30)
    return driver


def fail(drive, run, error="auth"):
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error=error)


def item_row(key, **options):
    (row,) = [r for r in relay("items", "-o", "json").json if r["item"] == key]
    return row


# items


def test_items_says_where_each_is_and_why_it_waits(now_drive):
    now_drive.intake("a", "b")
    rows = {row["item"]: row for row in relay("items", "-o", "json").json}
    assert rows["a"]["state"] == "granted"
    assert (rows["b"]["state"], rows["b"]["stage"], rows["b"]["waits"]) == ("ready", "first", "slot")
    assert "line.first" in rows["b"]["why"]
    assert rows["b"]["since"] == now_drive.now.isoformat()
    assert rows["b"]["for"] >= 30 * 60


def test_items_names_the_hold_that_stops_one(now_drive):
    with now_drive.ledger.dispatcher() as tx:
        governing.set_hold(tx, Hold(scope="P2", reason="the editor talks"), by="ada", now=now_drive.now)
    now_drive.ledger.intake(now_drive.pipeline, ["a", "b"], held("P2"), now_drive.now)
    assert item_row("b")["waits"] == "hold"


def held(scope):
    from airflow_relay.core.snapshot import Conditions

    return Conditions(holds={scope: "held"})


def test_items_says_who_moves_a_failed_and_a_dead_item(now_drive):
    first, *_ = now_drive.intake("a", "b")
    fail(now_drive, first, "auth")
    (second,) = now_drive.dispatch() or [newest(now_drive, "b")]
    fail(now_drive, second, "network")
    assert "a person decides (auth" in item_row("a")["why"]
    assert "recovery sweep" in item_row("b")["why"]


def newest(drive, key):
    from airflow_relay.ledger import runs

    with drive.ledger.read() as tx:
        return runs.newest(tx, drive.item(key).id)


def test_items_can_be_filtered(now_drive):
    now_drive.intake("a", "b")
    Driver(now_drive.ledger, line("other")).intake("c")
    keys = lambda *argv: sorted(r["item"] for r in relay("items", "-o", "json", *argv).json)  # noqa: E731
    assert keys("--pipeline", "other") == ["c"]
    assert keys("--state", "ready") == ["b"]
    assert keys("--state", "ready", "--state", "granted") == ["a", "b", "c"]
    assert keys("--stage", "second") == []


def test_a_cut_list_says_so_on_stderr(now_drive):
    now_drive.intake("a", "b", "c")
    answer = relay("items", "--limit", "2", "-o", "json")
    assert len(answer.json) == 2
    assert "Only the 2 items" in answer.err


def test_every_command_says_on_stderr_which_ledger_it_reads_without_its_password(ledger, now_drive):
    now_drive.intake("a")
    for argv in (("items",), ("show", "a"), ("log", "a"), ("status",), ("dead-letters",), ("breakers",)):
        answer = relay(*argv)
        assert answer.code == 0
        assert "Ledger: the ledger of this test, " in answer.err
        assert "the ledger of this test" not in answer.out


def test_no_items_is_an_answer(ledger):
    assert relay("items", "-o", "json").json == []
    assert relay("items").out == "No items.\n"


# show and log


def test_show_has_runs_with_latency_and_duration_and_the_results(now_drive):
    (run,) = now_drive.intake("a")
    now_drive.later(seconds=2)
    now_drive.ledger.confirm([run.id], now_drive.now)
    now_drive.guard(run)
    now_drive.later(seconds=90)
    now_drive.end(run, value={"words": 700})
    shown = relay("show", "a", "-o", "json").json
    first = shown["runs"][0]
    assert (first["stage"], first["result"]) == ("first", "success")
    assert (first["trigger_latency"], first["duration"]) == (2.0, 90.0)
    assert shown["results"][-1]["value"] == {"words": 700}
    assert shown["item"]["stage"] == "second"
    table = relay("show", "a").out
    assert "trigger_latency" in table
    assert "1 min 30 s" in table


def bill(drive, run, task, **usage):
    place = JobPlace(item_id=run.item_id, stage=run.stage, visit=1, task_id=task)
    with drive.ledger.write() as tx:
        begun = jobs.begin(
            tx,
            place,
            fingerprint="f" * 64,
            run=run.id,
            attempt="t",
            protocol="responses",
            conn_id="relay_agent",
            now=drive.now,
        )
        jobs.submitted(tx, begun.job.id, ref={"id": f"resp_{task}"}, now=drive.now)
        end = JobEnd(phase=JobPhase.SUCCEEDED, text="done", **usage)
        jobs.ended(tx, begun.job.id, end, now=drive.now)


def test_show_lists_kept_results_and_sums_their_usage(now_drive):
    (run,) = now_drive.intake("a")
    bill(now_drive, run, "draft", input_tokens=100, output_tokens=20, cost="0.02")
    bill(now_drive, run, "check", input_tokens=50, output_tokens=5, cost="0.010")
    shown = relay("show", "a", "-o", "json").json
    assert [(job["task"], job["kept"], job["job"]) for job in shown["jobs"]] == [
        ("draft", True, "resp_draft"),
        ("check", True, "resp_check"),
    ]
    assert shown["usage"] == [
        {"stage": "first", "jobs": 2, "tokens_in": 150, "tokens_out": 25, "cost": "0.030"}
    ]


def test_kept_results_can_be_dropped_once(now_drive):
    (run,) = now_drive.intake("a")
    bill(now_drive, run, "draft")
    assert relay("drop-results", "a", "-o", "json").json["changed"] == 1
    assert relay("drop-results", "a", "-o", "json").json["changed"] == 0
    assert relay("show", "a", "-o", "json").json["jobs"][0]["kept"] is False
    assert "dropped" in relay("log", "a").out


def test_show_has_the_open_dead_letter_with_its_trail(now_drive):
    (run,) = now_drive.intake("a")
    fail(now_drive, run)
    (letter,) = relay("show", "a", "-o", "json").json["dead_letters"]
    assert letter["error_class"] == "auth"
    assert letter["trail"]


def test_log_is_in_time_order(now_drive):
    (run,) = now_drive.intake("a")
    now_drive.later(seconds=2)
    now_drive.serve(run)
    log = relay("log", "a", "-o", "json").json
    assert [line["at"] for line in log] == sorted(line["at"] for line in log)
    assert [line["kind"] for line in log][:3] == ["registered", "granted", "started"]


@pytest.mark.parametrize("key", ['a"; DROP TABLE items; --', "ü/ß €", "-x", "a b", "x" * 200])
def test_any_key_can_be_asked_for(now_drive, key):
    now_drive.intake(key)
    assert relay("show", "-o", "json", "--", key).json["item"]["item"] == key


def test_an_item_that_is_not_there_is_a_negative_answer(ledger):
    answer = relay("log", "nobody")
    assert (answer.code, answer.out) == (1, "")
    assert "No item has the key 'nobody'" in answer.err


def test_a_key_of_two_pipelines_asks_for_one(now_drive):
    now_drive.intake("a")
    Driver(now_drive.ledger, line("other")).intake("a")
    answer = relay("show", "a")
    assert answer.code == 1
    assert "--pipeline" in answer.err
    assert relay("show", "a", "--pipeline", "other", "-o", "json").json["item"]["pipeline"] == "other"


# What a person does


def test_rewind_sends_an_item_back_and_says_who_did(now_drive):
    (run,) = now_drive.intake("a")
    now_drive.serve(run)
    answer = relay("rewind", "a", "first", "-o", "json")
    assert (answer.code, answer.json["changed"]) == (0, 1)
    assert "airflow relay dispatch" in answer.err
    assert (now_drive.item("a").state, now_drive.item("a").stage) == (ItemState.READY, "first")
    assert "(command line)" in relay("log", "a").out


def test_rewind_to_a_stage_that_is_not_there_is_a_usage_error_that_names_the_stages(now_drive):
    now_drive.intake("a")
    answer = relay("rewind", "a", "forth")
    assert answer.code == 2
    assert "first, second, third" in answer.err


def test_discard_twice_is_once(now_drive):
    now_drive.intake("a")
    assert relay("discard", "a", "--reason", "a duplicate", "-o", "json").json["changed"] == 1
    assert relay("discard", "a", "-o", "json").json["changed"] == 0
    assert now_drive.item("a").state is ItemState.DISCARDED


def test_a_refusal_is_a_negative_answer(now_drive):
    (run,) = now_drive.intake("a")
    for _ in range(3):
        (run, *_) = now_drive.serve(run) or [None]
    assert now_drive.item("a").state is ItemState.DONE
    answer = relay("discard", "a")
    assert answer.code == 1
    assert "is done" in answer.err


def test_move_carries_the_items_of_a_stage_over(now_drive):
    now_drive.intake("a", "b")
    answer = relay("move", "line", "first", "second", "-o", "json")
    assert (answer.json["changed"], sorted(answer.json["items"])) == (2, ["a", "b"])
    assert now_drive.item("b").stage == "second"

"""What people do to items, breakers and holds: once each, with the history kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_relay.core.breaker import BreakerState
from airflow_relay.core.item import Run, replay
from airflow_relay.core.pipeline import END, Pipeline, PipelineError, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import EventKind, ItemState, RunState
from airflow_relay.ledger import breakers, dead_letters, declarations, governing, interventions, items, jobs
from airflow_relay.ledger.errors import RefusedActionError, UnknownItemError, UnknownPipelineError
from airflow_relay.ledger.jobs import JobEnd, JobPhase, JobPlace
from airflow_relay.operations import actions
from support.dying import dead, die, open_letters
from support.pipelines import Driver, line, loop

BY = "ada"


def assert_log_replays(drive: Driver, key: str) -> None:
    item = drive.item(key)
    with drive.ledger.read() as tx:
        assert replay(item.id, items.log_of(tx, item.id)) == item


# Redrive


def test_a_redrive_gives_a_fresh_budget_and_keeps_the_history(drive):
    dead(drive)
    with drive.ledger.dispatcher() as tx:
        item = items.locked(tx, drive.item("a").id)
        change = interventions.Change(
            kind=EventKind.NOTE, at=drive.now, text="spent", set={"attempts": 3, "attempts_day": "2026-03-02"}
        )
        items.perform(tx, item, change)
    drive.later(minutes=1)
    done = actions.redrive(drive.ledger, "a", by=BY, now=drive.now)
    assert (done.changed, done.keys) == (1, ("a",))
    item = drive.item("a")
    assert (item.state, item.stage, item.attempts, item.error_class) == (ItemState.READY, "first", 0, None)
    assert item.finished_at is None
    log = "\n".join(drive.log("a"))
    assert "dead_lettered" in log
    assert "Redriven at first by ada" in log
    assert_log_replays(drive, "a")
    (run,) = drive.dispatch()
    assert (run.epoch, run.visit) == (2, 1)


def test_a_redrive_twice_is_once(drive):
    dead(drive)
    first = actions.redrive(drive.ledger, "a", by=BY, now=drive.now)
    second = actions.redrive(drive.ledger, "a", by=BY, now=drive.now)
    assert (first.changed, second.changed) == (1, 0)
    assert "already ready" in second.text
    assert len(drive.dispatch()) == 1
    assert "already granted" in actions.redrive(drive.ledger, "a", by=BY, now=drive.now).text
    assert open_letters(drive) == []


def test_a_failed_item_need_not_wait_for_the_sweep(drive):
    dead(drive, error="timeout")
    assert drive.item("a").state is ItemState.FAILED
    assert actions.redrive(drive.ledger, "a", by=BY, now=drive.now).changed == 1
    assert len(drive.dispatch()) == 1


def test_a_redrive_after_the_last_visit_lets_the_item_in_once_more_and_repeats_nothing_before(ledger):
    bounded = Pipeline(
        "bounded",
        [
            Stage("draft", to="judge", schedule="@daily"),
            Stage("judge", to={"ok": END, "again": "draft"}, max_visits=1),
        ],
    )
    drive = Driver(ledger, bounded)
    [draft] = drive.intake("a")
    [judge] = drive.serve(draft)
    [draft] = drive.serve(judge, "again")
    assert drive.serve(draft) == []
    item = drive.item("a")
    assert (item.state, item.stage, item.visit) == (ItemState.DEAD, "judge", 2)
    assert item.error_reason == "judge has used its visits"
    actions.redrive(ledger, "a", by=BY, now=drive.now)
    [judge] = drive.dispatch()
    assert (judge.stage, judge.visit) == ("judge", 2)
    drive.serve(judge, "ok")
    assert drive.item("a").state is ItemState.DONE


def test_a_redrive_at_another_stage_begins_there(drive):
    dead(drive)
    actions.redrive(drive.ledger, "a", stage="second", by=BY, now=drive.now)
    (run,) = drive.dispatch()
    assert (run.stage, run.visit) == ("second", 1)


def test_a_redrive_at_an_unknown_stage_names_the_stages_and_changes_nothing(drive):
    dead(drive)
    before = drive.item("a")
    with pytest.raises(PipelineError, match="first, second, third"):
        actions.redrive(drive.ledger, "a", stage="frist", by=BY, now=drive.now)
    assert drive.item("a") == before
    assert open_letters(drive) == ["a"]


def test_a_finished_item_is_not_redriven_and_the_text_says_what_helps(drive):
    (run,) = drive.intake("a")
    while run:
        granted = drive.serve(run)
        run = granted[0] if granted else None
    with pytest.raises(RefusedActionError, match="airflow relay rewind a"):
        actions.redrive(drive.ledger, "a", by=BY, now=drive.now)


def test_an_unknown_key_is_said_by_name(drive):
    drive.intake("a")
    with pytest.raises(UnknownItemError, match="'b'"):
        actions.redrive(drive.ledger, "b", by=BY, now=drive.now)


# Skip a stage


def test_a_skipped_stage_goes_on_by_its_route_and_keeps_the_status(drive):
    dead(drive)
    done = actions.skip_stage(drive.ledger, "a", by=BY, now=drive.now)
    assert "Ready for second" in done.text
    item = drive.item("a")
    assert (item.state, item.stage, item.status) == (ItemState.READY, "second", "")
    assert open_letters(drive) == []
    assert_log_replays(drive, "a")


def test_a_router_asks_for_an_outcome(drive_loop):
    drive = drive_loop
    (run,) = drive.intake("a")
    (run,) = drive.serve(run)
    die(drive, run)
    with pytest.raises(PipelineError, match="again, bad, ok"):
        actions.skip_stage(drive.ledger, "a", by=BY, now=drive.now)
    assert drive.item("a").state is ItemState.DEAD
    actions.skip_stage(drive.ledger, "a", outcome="bad", by=BY, now=drive.now)
    assert drive.item("a").state is ItemState.DISCARDED


def test_skipping_the_last_stage_ends_the_item(drive):
    dead(drive)
    actions.redrive(drive.ledger, "a", stage="third", by=BY, now=drive.now)
    actions.skip_stage(drive.ledger, "a", by=BY, now=drive.now)
    assert drive.item("a").state is ItemState.DONE
    with pytest.raises(RefusedActionError, match="done"):
        actions.skip_stage(drive.ledger, "a", by=BY, now=drive.now)


# Rewind


def test_a_rewind_supersedes_the_run_frees_its_slots_and_the_old_run_moves_nothing(ledger):
    drive = Driver(ledger, line(second=1))
    (first,) = drive.intake("a")
    (second,) = drive.serve(first)
    drive.ledger.confirm([second.id], drive.now)
    drive.guard(second)
    actions.rewind(ledger, "a", "first", by=BY, now=drive.later(minutes=1))
    assert drive.run(second).state is RunState.SUPERSEDED
    assert drive.usage() == {}
    (again,) = drive.dispatch()
    assert (again.stage, again.visit) == ("first", 1)
    assert drive.guard(second).decision.action.value == "skip_superseded"
    drive.end(second)
    assert drive.item("a").stage == "first"
    assert_log_replays(drive, "a")


def test_a_rewind_of_a_done_item_runs_it_again(drive):
    (run,) = drive.intake("a")
    while run:
        granted = drive.serve(run)
        run = granted[0] if granted else None
    assert drive.item("a").state is ItemState.DONE
    actions.rewind(drive.ledger, "a", "third", by=BY, now=drive.now)
    (run,) = drive.dispatch()
    assert (run.stage, run.visit) == ("third", 1)


def test_a_rewind_twice_is_once(drive):
    dead(drive)
    assert actions.rewind(drive.ledger, "a", "first", by=BY, now=drive.now).changed == 1
    assert actions.rewind(drive.ledger, "a", "first", by=BY, now=drive.now).changed == 0
    assert len(drive.dispatch()) == 1
    assert actions.rewind(drive.ledger, "a", "first", by=BY, now=drive.now).changed == 0


def test_visits_that_a_rewind_undoes_do_not_count(drive_loop):
    drive = drive_loop
    (run,) = drive.intake("a")
    for _ in range(2):
        (run,) = drive.serve(run)
        (run,) = drive.serve(run, "again")
    assert drive.item("a").visits == {"draft": 3, "review": 2}
    with drive.ledger.dispatcher() as tx:
        interventions.rewind(tx, drive.item("a").id, "review", by=BY, now=drive.now)
    assert drive.item("a").visits == {"draft": 2, "review": 2}


def place(drive: Driver, run: Run) -> JobPlace:
    return JobPlace(item_id=run.item_id, stage=run.stage, visit=run.visit, task_id="ask")


def begin(drive: Driver, run: Run, fingerprint: str = "f") -> jobs.Begun:
    with drive.ledger.write() as tx:
        return jobs.begin(
            tx,
            place(drive, run),
            fingerprint=fingerprint,
            run=run.id,
            attempt="try-1",
            protocol="responses",
            conn_id="relay_agent",
            now=drive.now,
        )


def test_a_rewind_asks_for_the_end_of_running_jobs(drive):
    (run,) = drive.intake("a")
    drive.guard(run)
    job = begin(drive, run).job
    actions.rewind(drive.ledger, "a", "second", by=BY, now=drive.now)
    with drive.ledger.read() as tx:
        assert jobs.by_id(tx, job.id).cancel_requested_at == drive.now


def test_a_redrive_keeps_paid_work_and_a_fresh_one_does_not(drive):
    (run,) = drive.intake("a")
    drive.guard(run)
    job = begin(drive, run).job
    with drive.ledger.write() as tx:
        end = JobEnd(
            phase=JobPhase.SUCCEEDED, text="done", stored=drive.ledger.prepare({"n": 1}, "line", "a", "job")
        )
        jobs.ended(tx, job.id, end, now=drive.now)
    die(drive, run)
    actions.redrive(drive.ledger, "a", by=BY, now=drive.now)
    (run,) = drive.dispatch()
    drive.guard(run)
    assert begin(drive, run).job.id == job.id
    die(drive, run)
    actions.redrive(drive.ledger, "a", fresh=True, by=BY, now=drive.now)
    (run,) = drive.dispatch()
    assert begin(drive, run).job.id != job.id


# Discard


def test_a_discard_in_flight_frees_the_slots_and_twice_is_once(ledger):
    drive = Driver(ledger, line(first=1))
    drive.intake("a", "b")
    assert actions.discard(ledger, "a", by=BY, now=drive.now, reason="duplicate").changed == 1
    assert actions.discard(ledger, "a", by=BY, now=drive.now).changed == 0
    assert "Discarded at first by ada: duplicate" in drive.log("a")[-1]
    (run,) = drive.dispatch()
    assert run.item_id == drive.item("b").id


def test_the_probe_of_a_breaker_that_is_discarded_gives_its_lease_back(drive):
    for run in drive.intake(*"abcde"):
        die(drive, run, "server_error")
    drive.intake("f")
    drive.later(hours=1)
    (probe,) = drive.dispatch()
    actions.discard(drive.ledger, "f", by=BY, now=drive.now)
    with drive.ledger.read() as tx:
        state = breakers.load_all(tx)[("line", "first")].state
    assert probe.stage == "first"
    assert state is BreakerState.OPEN


# Move


def test_items_of_a_removed_stage_are_carried_over(drive):
    (run,) = drive.intake("running")
    dead(drive, "dead")
    dead(drive, "failed", error="timeout")
    new = loop("line")
    with drive.ledger.write() as tx:
        declarations.declare(tx, new, drive.now)
        assert interventions.stranded(tx) == {("line", "first"): 3}
    done = actions.move(drive.ledger, "line", "first", "draft", by=BY, now=drive.now)
    assert done.changed == 3
    with drive.ledger.read() as tx:
        assert interventions.stranded(tx) == {}
        (letter,) = dead_letters.listing(tx)
    assert (letter.key, letter.stage) == ("dead", "draft")
    assert drive.item("dead").state is ItemState.DEAD
    assert drive.run(run).state is RunState.SUPERSEDED
    assert {r.stage for r in drive.dispatch()} == {"draft"}
    for key in ("running", "dead", "failed"):
        assert_log_replays(drive, key)
    assert actions.move(drive.ledger, "line", "first", "draft", by=BY, now=drive.now).changed == 0


def test_a_move_can_be_limited_to_items(drive):
    dead(drive, "a", "b", error="timeout")
    assert actions.move(drive.ledger, "line", "first", "third", keys=["b"], by=BY, now=drive.now).changed == 1
    assert (drive.item("a").stage, drive.item("b").stage) == ("first", "third")


def test_a_move_onto_itself_or_nowhere_is_refused(drive):
    dead(drive)
    with pytest.raises(RefusedActionError, match="another stage"):
        actions.move(drive.ledger, "line", "first", "first", by=BY, now=drive.now)
    with pytest.raises(PipelineError, match="no stage 'draft'"):
        actions.move(drive.ledger, "line", "first", "draft", by=BY, now=drive.now)
    with pytest.raises(UnknownPipelineError, match="line"):
        actions.move(drive.ledger, "lime", "first", "second", by=BY, now=drive.now)


# Holds, and breakers by hand


def test_a_hold_stops_grants_until_it_is_released_or_ends(drive):
    drive.intake()
    until = drive.now + timedelta(hours=1)
    actions.hold(drive.ledger, "line", reason="vacation", by=BY, now=drive.now, until=until)
    with drive.ledger.read() as tx:
        assert governing.holds(tx, drive.now)["line"].reason == "vacation"
        assert governing.holds(tx, until) == {}
    assert actions.release(drive.ledger, "line").changed == 1
    assert actions.release(drive.ledger, "line").changed == 0


@pytest.mark.parametrize(
    ("scope", "reason", "message"),
    [("lime", "r", "neither a class"), ("P9", "r", "neither a class"), ("line", " ", "Say why")],
)
def test_a_hold_of_nothing_or_for_no_reason_is_refused(drive, scope, reason, message):
    drive.intake()
    with pytest.raises(RefusedActionError, match=message):
        actions.hold(drive.ledger, scope, reason=reason, by=BY, now=drive.now)


def test_a_hold_that_is_over_already_is_refused(drive):
    with pytest.raises(RefusedActionError, match="is past"):
        actions.hold(drive.ledger, "P2", reason="r", by=BY, now=drive.now, until=drive.now)


def test_a_breaker_can_be_opened_and_closed_by_hand(drive):
    drive.conditions = Conditions(limits={"line.first": 0})
    drive.intake("a")
    drive.conditions = Conditions()
    opened = actions.open_breaker(drive.ledger, "line", "first", reason="maintenance", by=BY, now=drive.now)
    assert "maintenance (ada)" in opened.text
    assert drive.dispatch() == []
    assert actions.close_breaker(drive.ledger, "line", "first", reason="", by=BY, now=drive.now).changed == 1
    assert actions.close_breaker(drive.ledger, "line", "first", reason="", by=BY, now=drive.now).changed == 0
    assert len(drive.dispatch()) == 1
    with pytest.raises(PipelineError, match="no stage"):
        actions.open_breaker(drive.ledger, "line", "frist", reason="", by=BY, now=drive.now)

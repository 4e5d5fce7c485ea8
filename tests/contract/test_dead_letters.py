"""Dead letters: decided about in bulk, asked about a few at a time, alerted once, kept."""

from __future__ import annotations

from datetime import timedelta

from airflow_relay.core.states import ItemState, RunState
from airflow_relay.ledger import alerts, dead_letters
from airflow_relay.ledger.dead_letters import LetterFilter
from airflow_relay.operations import actions
from support.dying import dead, die, open_letters

BY = "ada"


def test_all_auth_failures_since_nine_are_redriven_and_nothing_else(drive):
    dead(drive, "early")
    nine = drive.later(hours=1)
    dead(drive, "a", "b")
    dead(drive, "policy", error="content_policy")
    where = LetterFilter(pipeline="line", stage="first", error_class="auth", since=nine)
    assert open_letters(drive, where) == ["a", "b"]
    done = actions.redrive_letters(drive.ledger, where, by=BY, now=drive.later(minutes=1))
    assert (done.changed, done.keys) == (2, ("a", "b"))
    assert open_letters(drive) == ["early", "policy"]
    again = actions.redrive_letters(drive.ledger, where, by=BY, now=drive.now)
    assert again.changed == 0
    assert len(drive.dispatch()) == 2


def test_a_bulk_redrive_goes_through_more_than_one_batch(drive, monkeypatch):
    monkeypatch.setattr(actions, "BATCH", 2)
    keys = [f"item-{i}" for i in range(5)]
    dead(drive, *keys)
    done = actions.redrive_letters(drive.ledger, LetterFilter(), by=BY, now=drive.now)
    assert done.changed == 5
    assert open_letters(drive) == []


def test_letters_can_be_chosen_by_age_and_key_and_are_counted(drive):
    dead(drive, "old")
    noon = drive.later(hours=3)
    dead(drive, "new")
    assert open_letters(drive, LetterFilter(before=noon)) == ["old"]
    assert open_letters(drive, LetterFilter(keys=["new"])) == ["new"]
    with drive.ledger.read() as tx:
        assert dead_letters.counts(tx) == {("line", "first", "auth"): 2}


def test_a_bulk_skip_passes_over_what_needs_an_outcome(drive_loop):
    drive = drive_loop
    (run,) = drive.intake("routed")
    (run,) = drive.serve(run)
    die(drive, run)
    dead(drive, "plain")
    done = actions.skip_letters(drive.ledger, LetterFilter(), by=BY, now=drive.now)
    assert done.keys == ("plain",)
    assert "routed" in done.problems[0]
    assert "again, bad, ok" in done.problems[0]
    assert open_letters(drive) == ["routed"]


def test_a_bulk_discard_ends_them(drive):
    dead(drive, "a", "b")
    assert actions.discard_letters(drive.ledger, LetterFilter(), by=BY, now=drive.now).changed == 2
    assert {drive.item(k).state for k in "ab"} == {ItemState.DISCARDED}


def test_one_alert_for_each_entry_into_the_dead_letters(drive):
    for _ in range(2):
        for run in dead(drive) or drive.dispatch():
            if drive.run(run).state is RunState.OPEN:
                die(drive, run)
        actions.redrive(drive.ledger, "a", by=BY, now=drive.later(minutes=1))
    with drive.ledger.read() as tx:
        assert len(alerts.unsent(tx)) == 2


def test_an_alert_has_one_sender_at_a_time_until_it_is_taken(drive):
    dead(drive)
    with drive.ledger.write() as tx:
        (alert,) = alerts.unsent(tx)
        assert alert.item_id == drive.item("a").id
        assert alerts.claim(tx, alert, drive.now)
        assert not alerts.claim(tx, alert, drive.now + timedelta(minutes=1))
        alerts.settle(tx, alert, now=drive.now, error="refused")
        assert alerts.count_unsent(tx) == (1, "refused")
        assert alerts.claim(tx, alert, drive.now + alerts.CLAIM)
        alerts.settle(tx, alert, now=drive.now, error=None)
        assert not alerts.claim(tx, alert, drive.now + timedelta(days=1))
        assert alerts.count_unsent(tx) == (0, None)


def test_at_most_twenty_letters_are_questions_and_answered_ones_make_room(drive):
    keys = [f"item-{i:02}" for i in range(23)]
    dead(drive, *keys)
    with drive.ledger.dispatcher() as tx:
        asked = [letter.key for letter in dead_letters.offer(tx, drive.now)]
    assert asked == keys[:20]
    actions.redrive(drive.ledger, "item-05", by=BY, now=drive.now)
    with drive.ledger.dispatcher() as tx:
        asked = [letter.key for letter in dead_letters.offer(tx, drive.now)]
    assert asked == [k for k in keys[:21] if k != "item-05"]


def test_the_last_log_lines_are_looked_for_once(drive):
    dead(drive)
    with drive.ledger.write() as tx:
        (letter,) = dead_letters.without_log(tx, drive.now)
        dead_letters.add_log(tx, letter, ["one", "two"], drive.now)
        assert dead_letters.without_log(tx, drive.now) == []
        assert dead_letters.listing(tx)[0].trail[-1]["text"] == "one\ntwo"


def test_every_letter_of_an_item_stays_with_who_decided_about_it(drive):
    dead(drive)
    actions.redrive(drive.ledger, "a", by=BY, now=drive.now)
    (run,) = drive.dispatch()
    die(drive, run)
    with drive.ledger.read() as tx:
        first, second = dead_letters.of_item(tx, run.item_id)
        resolved = dead_letters.listing(tx, resolved=True)
    assert (first.resolution, first.resolved_by) == ("redriven", BY)
    assert second.is_open
    assert [letter.id for letter in resolved] == [first.id]

"""``relay__admin``: each action of the form, and what it says when a field is missing."""

from __future__ import annotations

import pytest

from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.ledger import dead_letters, governing
from airflow_relay.ledger.errors import RefusedActionError
from airflow_relay.operators.admin import Action, Form, perform


@pytest.fixture
def do(drive):
    def act(action: Action | str, **fields):
        params = {"action": getattr(action, "value", action), "item": None, "reason": "", **fields}
        return perform(drive.ledger, Form(params, by="ada", now=drive.now))

    return act


def dead(drive, *keys: str, error: str = "auth") -> None:
    for run in drive.intake(*keys):
        drive.guard(run)
        drive.end(run, result=RunResult.FAILED, error=error)


def test_every_action_that_the_form_offers_is_carried_out(drive, do):
    done = {}
    dead(drive, "a", "b", "c", "d")
    done[Action.REDRIVE] = do(Action.REDRIVE, item="a").changed
    done[Action.SKIP_STAGE] = do(Action.SKIP_STAGE, item="b").changed
    done[Action.DISCARD] = do(Action.DISCARD, item="c", reason="spam").changed
    done[Action.REWIND] = do(Action.REWIND, item="d", to_stage="third").changed
    done[Action.MOVE] = do(Action.MOVE, pipeline="line", stage="third", to_stage="second").changed
    done[Action.HOLD] = do(Action.HOLD, scope="line", reason="vacation", hours=2).changed
    done[Action.RELEASE] = do(Action.RELEASE, scope="line").changed
    done[Action.OPEN_BREAKER] = do(Action.OPEN_BREAKER, pipeline="line", stage="first").changed
    done[Action.CLOSE_BREAKER] = do(Action.CLOSE_BREAKER, pipeline="line", stage="first").changed
    done[Action.DISPATCH] = do(Action.DISPATCH).changed + 1
    drive.later(days=40)
    done[Action.CLEAN] = do(Action.CLEAN, days=30).changed  # the discarded one
    assert done == dict.fromkeys(Action, 1)
    stages = {key: (drive.item(key).state, drive.item(key).stage) for key in "abd"}
    assert stages == {
        "a": (ItemState.READY, "first"),
        "b": (ItemState.READY, "second"),
        "d": (ItemState.READY, "second"),
    }


def test_a_clean_up_without_a_number_of_days_removes_nothing(drive, do):
    dead(drive, "c")
    do(Action.DISCARD, item="c")
    drive.later(days=400)
    with pytest.raises(RefusedActionError, match="'days'"):
        do(Action.CLEAN)
    assert drive.item("c").state is ItemState.DISCARDED


def test_skipping_a_stage_that_is_named_happens_once(drive, do):
    dead(drive, "a")
    assert do(Action.SKIP_STAGE, item="a", stage="first").changed == 1
    again = do(Action.SKIP_STAGE, item="a", stage="first")
    assert (again.changed, drive.item("a").stage) == (0, "second")


def test_without_an_item_a_redrive_is_for_the_letters_that_the_filter_matches(drive, do):
    dead(drive, "old")
    drive.later(hours=5)
    dead(drive, "new")
    assert do(Action.REDRIVE, pipeline="line", error_class="auth", since_hours=1).keys == ("new",)


def test_a_half_filled_discard_does_not_throw_everything_away(drive, do):
    dead(drive, "a")
    with pytest.raises(RefusedActionError, match="'pipeline'"):
        do(Action.DISCARD)
    with drive.ledger.read() as tx:
        assert len(dead_letters.listing(tx)) == 1


@pytest.mark.parametrize(
    ("action", "fields", "missing"),
    [
        (Action.REWIND, {"item": "a"}, "to_stage"),
        (Action.MOVE, {"pipeline": "line", "to_stage": "first"}, "stage"),
        (Action.HOLD, {"scope": "line"}, "reason"),
        (Action.RELEASE, {}, "scope"),
        (Action.OPEN_BREAKER, {"pipeline": "line"}, "stage"),
        ("", {}, "action"),
    ],
)
def test_a_missing_field_is_named(drive, do, action, fields, missing):
    dead(drive, "a")
    with pytest.raises(RefusedActionError, match=f"'{missing}'"):
        do(action, **fields)


def test_an_unknown_action_is_answered_with_the_known_ones(do):
    with pytest.raises(RefusedActionError, match="redrive, skip stage, discard"):
        do("explode")


def test_a_hold_by_form_ends_by_itself(drive, do):
    dead(drive, "a")
    do(Action.HOLD, scope="line", reason="vacation", hours=2)
    with drive.ledger.read() as tx:
        assert list(governing.holds(tx, drive.now)) == ["line"]
        assert list(governing.holds(tx, drive.later(hours=2))) == []

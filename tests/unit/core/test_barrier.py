from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from airflow_relay.core.barrier import (
    CEILING_REASON,
    RUN_DIED_REASON,
    TERMINAL_PHASES,
    TRACK_LIMIT_REASON,
    BarrierSettings,
    BarrierTimeError,
    ForceProceed,
    Proceed,
    Track,
    TrackPhase,
    TrackReport,
    TrackResult,
    Wait,
    ceiling_at,
    next_poll_at,
    poll,
)

DISPATCH = datetime(2026, 4, 21, 0, 0, tzinfo=timezone.utc)
DEFAULTS = BarrierSettings()
A, B = Track("track_a"), Track("track_b")
RUNNING = TrackReport(TrackPhase.RUNNING)
COMPLETE = TrackReport(TrackPhase.COMPLETE)


def hours(number):
    return timedelta(hours=number)


def at(number):
    return DISPATCH + hours(number)


def ask(now, reports=None, *, tracks=(A, B), finished=None, settings=DEFAULTS):
    return poll(tracks, DISPATCH, now, settings, reports=reports or {}, finished=finished or {})


def run_barrier(ends, *, settings=DEFAULTS, tracks=None, delay=None):
    """Poll as planned until the barrier opens; ``ends`` maps each track to its end (hours) or None."""
    tracks = tracks or [Track(name) for name in ends]
    decisions, finished = [], {}
    now = DISPATCH + settings.first_poll
    while True:
        reports = {
            name: COMPLETE if end is not None and at(end) <= now else RUNNING for name, end in ends.items()
        }
        decision = poll(tracks, DISPATCH, now, settings, reports=reports, finished=finished)
        decisions.append(decision)
        if not isinstance(decision, Wait):
            return decisions
        finished = decision.results
        now = decision.until + (delay or timedelta(0))


# ---------------------------------------------------------------- the document's example


def test_the_documents_example_polls_and_opens_at_its_times():
    ends = {"track_b": 3.9, "track_c": 2.8, "track_d": 3.4, "track_e": 5.3}
    decisions = run_barrier(ends)

    assert [decision.elapsed_h for decision in decisions] == [3.0, 3.5, 4.0, 4.5, 5.0, 5.5]
    complete = [
        "".join(sorted(name[-1] for name in decision.phases if decision.phases[name] is TrackPhase.COMPLETE))
        for decision in decisions
    ]
    assert complete == ["c", "cd", "bcd", "bcd", "bcd", "bcde"]
    assert [type(decision) for decision in decisions] == [Wait] * 5 + [Proceed]
    assert [decision.until for decision in decisions[:-1]] == [at(3.5), at(4), at(4.5), at(5), at(5.5)]
    assert [decision.log_line()["done"] for decision in decisions] == [False] * 5 + [True]

    consolidation = hours(2.5)
    total = decisions[-1].polled_at - DISPATCH + consolidation
    assert total == hours(8)
    assert total <= hours(max(ends.values())) + timedelta(minutes=30) + consolidation


@pytest.mark.parametrize(
    ("last_end", "opens"), [(3.0, 3.0), (3.01, 3.5), (5.5, 5.5), (5.51, 6.0), (13.9, 14.0), (1.0, 3.0)]
)
def test_opens_at_the_first_half_hour_boundary_after_the_last_track_ends(last_end, opens):
    decisions = run_barrier({"track_a": 1.0, "track_b": last_end})
    assert isinstance(decisions[-1], Proceed)
    assert decisions[-1].polled_at == at(opens)


def test_log_line_is_json_in_the_documents_format():
    decision = ask(at(3), {"track_a": COMPLETE, "track_b": RUNNING})
    assert json.loads(json.dumps(decision.log_line())) == {
        "ts": at(3).timestamp(),
        "phases": {"track_a": "complete", "track_b": "running"},
        "elapsed_h": 3.0,
        "done": False,
    }


# ---------------------------------------------------------------- opening


def test_zero_tracks_proceed_at_once():
    decision = poll((), DISPATCH, DISPATCH, DEFAULTS)
    assert isinstance(decision, Proceed)
    assert decision.results == {}


def test_both_kinds_of_end_open_the_barrier_and_hand_on_what_the_tracks_said():
    gave_up = TrackReport(TrackPhase.TAPPED_OUT, reason="source offline")
    complete = TrackReport(TrackPhase.COMPLETE, completed_at=at(2), details={"rows": 7})
    decision = ask(at(3), {"track_a": complete, "track_b": gave_up})
    assert isinstance(decision, Proceed)
    assert decision.results == {
        "track_a": TrackResult("track_a", TrackPhase.COMPLETE, None, at(2), {"rows": 7}),
        "track_b": TrackResult("track_b", TrackPhase.TAPPED_OUT, "source offline"),
    }
    assert decision.tapped == ()


def test_asked_before_the_first_poll_it_waits_for_it_or_opens_if_all_have_ended():
    early = ask(at(1), {"track_a": COMPLETE})
    assert isinstance(early, Wait)
    assert early.until == at(3)
    assert isinstance(ask(at(1), {"track_a": COMPLETE, "track_b": COMPLETE}), Proceed)


def test_all_complete_at_or_after_the_ceiling_is_no_forced_opening():
    decision = ask(at(20), {"track_a": COMPLETE, "track_b": COMPLETE})
    assert isinstance(decision, Proceed)
    assert decision.tapped == ()


@pytest.mark.parametrize("phase", [TrackPhase.PENDING, TrackPhase.RUNNING, TrackPhase.UNKNOWN])
def test_every_phase_that_is_not_final_counts_as_running(phase):
    decision = ask(at(3), {"track_a": COMPLETE, "track_b": TrackReport(phase)})
    assert isinstance(decision, Wait)
    assert decision.phases["track_b"] is phase
    assert not decision.done


def test_an_unknown_phase_is_named_in_the_notes():
    decision = ask(at(3), {"track_a": TrackReport(TrackPhase.UNKNOWN), "track_b": RUNNING})
    assert len(decision.notes) == 1
    assert "track_a" in decision.notes[0]


def test_a_track_without_report_is_pending():
    assert ask(at(3), {"track_a": COMPLETE}).phases["track_b"] is TrackPhase.PENDING


def test_unknown_tracks_are_reported_and_hold_nothing_up():
    decision = ask(at(3), {"track_a": COMPLETE, "track_b": COMPLETE, "track_z": RUNNING, "track_y": RUNNING})
    assert isinstance(decision, Proceed)
    assert decision.unknown_tracks == ("track_y", "track_z")
    assert set(decision.results) == set(decision.phases) == {"track_a", "track_b"}
    assert "track_y, track_z" in decision.notes[0]


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("now_says", [None, RUNNING, TrackReport(TrackPhase.UNKNOWN, run_alive=False)])
def test_a_finished_track_does_not_unfinish(now_says):
    first = ask(at(3), {"track_a": COMPLETE, "track_b": RUNNING})
    reports = {"track_b": COMPLETE} | ({"track_a": now_says} if now_says else {})
    second = ask(at(3.5), reports, finished=first.results)
    assert isinstance(second, Proceed)
    assert second.results["track_a"] == first.results["track_a"]
    assert second.tapped == ()


def test_a_late_success_does_not_undo_a_tap_out_and_is_noted():
    dead = TrackReport(TrackPhase.RUNNING, run_alive=False)
    first = ask(at(3), {"track_a": dead, "track_b": RUNNING})
    second = ask(at(3.5), {"track_a": COMPLETE, "track_b": RUNNING}, finished=first.results)
    assert second.results == first.results
    assert second.phases["track_a"] is TrackPhase.TAPPED_OUT
    assert "now reports complete" in second.notes[0]


def test_memory_of_tracks_that_nobody_waits_for_is_dropped():
    stale = {"track_old": TrackResult("track_old", TrackPhase.COMPLETE)}
    decision = ask(at(3), {"track_a": RUNNING}, finished=stale)
    assert "track_old" not in decision.results
    assert not decision.done


@pytest.mark.parametrize("phase", sorted(set(TrackPhase) - TERMINAL_PHASES))
def test_a_result_must_be_final(phase):
    with pytest.raises(ValueError, match="no final phase"):
        TrackResult("track_a", phase)


# ---------------------------------------------------------------- tapping out


def test_the_ceiling_taps_out_what_is_left_and_says_who():
    decision = ask(
        at(14), {"track_a": COMPLETE, "track_b": TrackReport(TrackPhase.RUNNING, details={"n": 1})}
    )
    assert isinstance(decision, ForceProceed)
    assert [(end.name, end.phase, end.reason, end.completed_at, end.details) for end in decision.tapped] == [
        ("track_b", TrackPhase.TAPPED_OUT, "[TAPPED — wallclock ceiling hit]", at(14), {"n": 1})
    ]
    assert set(decision.results) == {"track_a", "track_b"}
    assert decision.log_line()["done"] is False
    assert decision.phases["track_b"] is TrackPhase.RUNNING


def test_just_below_the_ceiling_it_still_waits():
    decision = ask(at(14) - timedelta(microseconds=1), {"track_a": RUNNING})
    assert isinstance(decision, Wait)
    assert decision.until == at(14)


def test_the_ceiling_holds_when_the_source_cannot_be_read():
    decision = ask(at(14))
    assert isinstance(decision, ForceProceed)
    assert {end.reason for end in decision.tapped} == {CEILING_REASON}


def test_a_poll_long_after_the_ceiling_still_believes_reported_ends():
    decision = ask(at(50), {"track_a": COMPLETE, "track_b": RUNNING})
    assert isinstance(decision, ForceProceed)
    assert [end.name for end in decision.tapped] == ["track_b"]


def test_a_second_ask_after_the_forced_opening_taps_nothing_out_again():
    first = ask(at(14), {"track_a": RUNNING, "track_b": RUNNING})
    second = ask(at(15), {"track_a": RUNNING, "track_b": RUNNING}, finished=first.results)
    assert isinstance(second, Proceed)
    assert second.tapped == ()
    assert second.results == first.results


def test_a_run_that_died_without_reporting_is_tapped_out_at_the_next_poll():
    dead = TrackReport(TrackPhase.RUNNING, run_alive=False)
    decision = ask(at(3), {"track_a": dead, "track_b": RUNNING})
    assert isinstance(decision, Wait)
    assert [(end.name, end.reason) for end in decision.tapped] == [("track_a", RUN_DIED_REASON)]
    assert decision.phases["track_a"] is TrackPhase.TAPPED_OUT
    again = ask(at(3.5), {"track_a": dead, "track_b": RUNNING}, finished=decision.results)
    assert again.tapped == ()


def test_the_last_track_dying_opens_the_barrier_without_force():
    dead = TrackReport(TrackPhase.PENDING, run_alive=False)
    decision = ask(at(3), {"track_a": COMPLETE, "track_b": dead})
    assert isinstance(decision, Proceed)
    assert decision.done
    assert [end.name for end in decision.tapped] == ["track_b"]


def test_a_dead_run_that_had_reported_its_end_is_believed():
    ended = TrackReport(TrackPhase.COMPLETE, run_alive=False)
    decision = ask(at(3), {"track_a": ended, "track_b": ended})
    assert {end.phase for end in decision.results.values()} == {TrackPhase.COMPLETE}


@pytest.mark.parametrize("alive", [True, None])
def test_a_run_that_lives_or_of_which_nothing_is_known_is_waited_for(alive):
    decision = ask(at(3), {"track_a": COMPLETE, "track_b": TrackReport(TrackPhase.RUNNING, run_alive=alive)})
    assert isinstance(decision, Wait)
    assert decision.tapped == ()


def test_a_dead_run_found_at_the_ceiling_keeps_the_more_exact_reason():
    decision = ask(at(14), {"track_a": TrackReport(TrackPhase.RUNNING, run_alive=False), "track_b": RUNNING})
    assert {end.name: end.reason for end in decision.tapped} == {
        "track_a": RUN_DIED_REASON,
        "track_b": CEILING_REASON,
    }


def test_a_tracks_own_limit_taps_out_only_that_track_at_the_first_poll_at_or_after_it():
    tracks = (Track("track_a", max_wallclock=hours(4)), B)
    decisions = run_barrier({"track_a": None, "track_b": 5.2}, tracks=tracks)
    tapped = [(d.elapsed_h, end.name, end.reason) for d in decisions for end in d.tapped]
    assert tapped == [(4.0, "track_a", TRACK_LIMIT_REASON)]
    assert isinstance(decisions[-1], Proceed)
    assert decisions[-1].elapsed_h == 5.5


def test_a_tracks_own_limit_between_two_polls_waits_for_the_grid():
    tracks = (Track("track_a", max_wallclock=hours(3.2)),)
    decisions = run_barrier({"track_a": None}, tracks=tracks)
    assert [decision.elapsed_h for decision in decisions] == [3.0, 3.5]


def test_a_track_that_reported_in_time_is_not_tapped_out_by_its_limit():
    tracks = (Track("track_a", max_wallclock=hours(3)),)
    decision = ask(at(6), {"track_a": COMPLETE}, tracks=tracks)
    assert decision.results["track_a"].phase is TrackPhase.COMPLETE


# ---------------------------------------------------------------- when to look


@pytest.mark.parametrize(
    ("now", "planned"), [(-1, 3), (0, 3), (2.99, 3), (3, 3.5), (3.2, 3.5), (3.5, 4), (13.6, 14), (9.999, 10)]
)
def test_polls_stand_on_a_grid_anchored_at_the_dispatch(now, planned):
    assert next_poll_at(DISPATCH, at(now), DEFAULTS) == at(planned)


def test_a_late_poll_happens_late_and_does_not_shift_the_grid():
    decision = ask(at(3) + timedelta(minutes=47), {"track_a": RUNNING})
    assert decision.until == at(4)


def test_missed_polls_are_skipped_and_count_for_nothing():
    decision = ask(at(9.1), {"track_a": RUNNING, "track_b": RUNNING})
    assert isinstance(decision, Wait)
    assert decision.until == at(9.5)
    assert decision.tapped == ()


def test_the_last_poll_is_pulled_forward_to_the_ceiling():
    uneven = BarrierSettings(first_poll=hours(3), poll_interval=hours(4), ceiling=hours(10))
    decisions = run_barrier({"track_a": None}, settings=uneven)
    assert [decision.elapsed_h for decision in decisions] == [3.0, 7.0, 10.0]
    assert isinstance(decisions[-1], ForceProceed)


def test_first_poll_at_the_ceiling_gives_one_poll():
    one = BarrierSettings(first_poll=hours(5), ceiling=hours(5))
    assert len(run_barrier({"track_a": None}, settings=one)) == 1


def test_a_clock_change_during_the_night_moves_nothing():
    chicago = ZoneInfo("America/Chicago")
    dispatched = datetime(2026, 3, 7, 23, 0, tzinfo=chicago)  # the clocks go forward at 02:00
    by_the_clock = datetime(2026, 3, 8, 3, 0, tzinfo=chicago)  # four hours on the wall, three elapsed
    decision = poll((A,), dispatched, by_the_clock, DEFAULTS)
    assert decision.elapsed_h == 3.0
    assert decision.until - decision.polled_at == timedelta(minutes=30)
    assert ceiling_at(dispatched, DEFAULTS) == datetime(2026, 3, 8, 19, 0, tzinfo=timezone.utc)


def test_a_clock_set_back_waits_for_the_first_poll():
    decision = ask(at(-2))
    assert isinstance(decision, Wait)
    assert decision.until == at(3)


@pytest.mark.parametrize(
    "bad",
    [
        datetime(2026, 4, 21),  # noqa: DTZ001 - the point of the test
        datetime.min.replace(tzinfo=timezone.utc),
        datetime.max.replace(tzinfo=timezone.utc),
    ],
)
def test_times_without_zone_or_out_of_range_are_refused_by_name(bad):
    with pytest.raises(BarrierTimeError, match=r"^now: "):
        poll((A,), DISPATCH, bad, DEFAULTS)
    with pytest.raises(BarrierTimeError, match=r"^dispatched_at: "):
        poll((A,), bad, DISPATCH, DEFAULTS)

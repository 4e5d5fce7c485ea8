"""Tracks in the ledger: one dispatch time, ends that stand, tap-outs at most once. On both databases."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from airflow_relay.core.barrier import (
    CEILING_REASON,
    BarrierSettings,
    ForceProceed,
    Proceed,
    Track,
    TrackPhase,
    TrackReport,
    TrackResult,
    Wait,
    poll,
)
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import Clock, DispatchConflictError, GroupPlace, NewTrack
from airflow_relay.ledger.tracks import TrackResultError
from airflow_relay.operations.tracks_advice import NoTracksRecordedError, advise_from_ledger
from support.pipelines import START

PLACE = GroupPlace(dag_id="night", run_id="run-1")
SETTINGS = BarrierSettings(first_poll=15, poll_interval=10, ceiling=90)
A, B = Track("a"), Track("b", timedelta(seconds=60))
DISPATCHED = [NewTrack(track=A, dag_id="night_a"), NewTrack(track=B, dag_id="night_b")]


def after(seconds):
    return START + timedelta(seconds=seconds)


def dispatch(ledger, *, clear_number=0, at=0, wanted=DISPATCHED, place=PLACE):
    with ledger.write() as tx:
        return track_groups.record(
            tx, place, wanted, clear_number=clear_number, clock=Clock.DISPATCH, now=after(at)
        )


def report(ledger, group, name, phase=TrackPhase.COMPLETE, *, at, result=None, reason=None):
    details = {} if result is None else {"result": result}
    with ledger.write() as tx:
        return tracks.end(tx, group.id, TrackResult(name, phase, reason, after(at), details), now=after(at))


def rows_of(ledger, group):
    with ledger.read() as tx:
        return {row.name: row for row in tracks.of_group(tx, group.id)}


def poll_now(ledger, group, *, at):
    with ledger.write() as tx:
        rows = tracks.of_group(tx, group.id, lock=True)
        decision = poll(
            [A, B],
            group.dispatched_at,
            after(at),
            SETTINGS,
            reports={row.name: row.as_report() for row in rows},
            finished={row.name: row.as_result() for row in rows if row.is_final},
        )
        return decision, tracks.record_poll(tx, group.id, decision)


def test_dispatch_is_recorded_once_however_often_it_is_tried(ledger: Ledger) -> None:
    first = dispatch(ledger)
    again = dispatch(ledger, at=500)
    assert again == first
    assert first.dispatched_at == START
    rows = rows_of(ledger, first)
    assert set(rows) == {"a", "b"}
    assert rows["b"].max_wallclock == timedelta(seconds=60)
    assert rows["a"].run_id != rows["b"].run_id


def test_clear_while_tracks_run_keeps_the_clock_and_the_runs(ledger: Ledger) -> None:
    first = dispatch(ledger)
    cleared = dispatch(ledger, clear_number=1, at=40)
    assert (cleared.id, cleared.dispatched_at, cleared.clear_number) == (first.id, START, 1)
    assert rows_of(ledger, cleared) == rows_of(ledger, first)


def test_retry_after_a_clear_is_no_new_dispatch_even_if_all_tracks_have_ended_meanwhile(
    ledger: Ledger,
) -> None:
    first = dispatch(ledger)
    dispatch(ledger, clear_number=1, at=40)
    report(ledger, first, "a", at=50)
    report(ledger, first, "b", at=50)
    assert dispatch(ledger, clear_number=1, at=60).id == first.id


def test_clear_after_the_end_dispatches_anew_with_fresh_clock_and_runs(ledger: Ledger) -> None:
    first = dispatch(ledger)
    report(ledger, first, "a", at=20)
    report(ledger, first, "b", TrackPhase.TAPPED_OUT, at=30, reason="no luck")
    second = dispatch(ledger, clear_number=1, at=5000)
    assert second.id != first.id
    assert second.dispatched_at == after(5000)
    old, new = rows_of(ledger, first), rows_of(ledger, second)
    assert {old["a"].run_id, old["b"].run_id}.isdisjoint({new["a"].run_id, new["b"].run_id})
    with ledger.read() as tx:
        assert track_groups.find(tx, PLACE) == second


def test_two_dispatches_at_once_record_one_group(ledger: Ledger) -> None:
    together = threading.Barrier(4)
    found = []

    def one(at):
        together.wait()
        found.append(dispatch(ledger, at=at))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({(group.id, group.dispatched_at) for group in found}) == 1


def test_other_tracks_under_the_same_group_are_refused(ledger: Ledger) -> None:
    dispatch(ledger)
    with pytest.raises(DispatchConflictError, match=r"'tracks' already.*group="):
        dispatch(ledger, wanted=[NewTrack(track=Track("other"), dag_id="x")])
    other = GroupPlace(dag_id="night", run_id="run-1", name="second")
    assert dispatch(ledger, wanted=[NewTrack(track=Track("other"), dag_id="x")], place=other).name == "second"


def test_barrier_that_waits_for_a_track_nobody_dispatched_is_refused(ledger: Ledger) -> None:
    group = dispatch(ledger)
    with ledger.write() as tx, pytest.raises(DispatchConflictError, match="waits for typo"):
        track_groups.expect(tx, group, [A, Track("typo")])


def test_run_ids_never_meet_and_fit_airflow(ledger: Ledger) -> None:
    places = [
        GroupPlace(dag_id="d", run_id="r/" + "x" * 245, name="tracks"),
        GroupPlace(dag_id="d", run_id="r-" + "x" * 245, name="tracks"),
        GroupPlace(dag_id="d/r", run_id="x", name="tracks"),
        GroupPlace(dag_id="d", run_id="r/x", name="tracks"),
    ]
    ids = [track_groups.track_run_id(p, t, c) for p in places for t in ("ä" * 200, "a") for c in (0, 12)]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= 250


def test_first_end_of_a_track_stands(ledger: Ledger) -> None:
    group = dispatch(ledger)
    assert report(ledger, group, "a", TrackPhase.TAPPED_OUT, at=20, reason="gave up")
    assert not report(ledger, group, "a", at=30, result={"late": True})
    row = rows_of(ledger, group)["a"]
    assert (row.phase, row.reason, row.finished_at, row.result) == (
        TrackPhase.TAPPED_OUT,
        "gave up",
        after(20),
        None,
    )


def test_begin_of_a_retry_keeps_the_first_start_and_does_not_unfinish(ledger: Ledger) -> None:
    group = dispatch(ledger)
    where = {"dag_id": "night_a", "run_id": "r", "task": "work"}
    with ledger.write() as tx:
        tracks.begin(tx, group.id, "a", now=after(3), **where)
    with ledger.write() as tx:
        assert tracks.begin(tx, group.id, "a", now=after(9), **where).started_at == after(3)
    report(ledger, group, "a", at=20, result=[1, 2])
    with ledger.write() as tx:
        assert tracks.begin(tx, group.id, "a", now=after(30), **where).phase is TrackPhase.COMPLETE
    assert rows_of(ledger, group)["a"].result == [1, 2]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "x" * 70_000, "\ud800"])
def test_result_that_cannot_be_kept_is_refused_and_the_track_has_no_end(
    ledger: Ledger, value: object
) -> None:
    group = dispatch(ledger)
    with pytest.raises(TrackResultError, match="track 'a'"):
        report(ledger, group, "a", at=20, result=value)
    assert not rows_of(ledger, group)["a"].is_final


def test_polls_are_logged_and_the_ceiling_taps_out_each_track_once(ledger: Ledger) -> None:
    group = dispatch(ledger)
    early, _ = poll_now(ledger, group, at=15)
    assert isinstance(early, Wait)
    report(ledger, group, "a", at=20, result="pages")
    second, tapped = poll_now(ledger, group, at=70)
    assert isinstance(second, Proceed), "b is past its own budget of 60 s"
    assert tapped == ("b",)
    again, tapped_again = poll_now(ledger, group, at=95)
    assert isinstance(again, Proceed)
    assert tapped_again == ()
    with ledger.read() as tx:
        log = tracks.polls_of(tx, group.id)
    assert [(p.done, p.tapped) for p in log] == [(False, ()), (True, ("b",)), (True, ())]
    assert log[0].log_line() == {
        "ts": after(15).timestamp(),
        "phases": {"a": "pending", "b": "pending"},
        "elapsed_h": 15 / 3600,
        "done": False,
    }


def test_two_polls_at_the_ceiling_tap_out_once(ledger: Ledger) -> None:
    group = dispatch(ledger)
    together, found = threading.Barrier(2), []

    def one():
        together.wait()
        found.append(poll_now(ledger, group, at=90))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(tapped) for _, tapped in found) == [0, 2]
    assert {type(decision) for decision, _ in found} == {ForceProceed, Proceed}
    assert {row.reason for row in rows_of(ledger, group).values()} == {
        CEILING_REASON,
        "[TAPPED — track's own max_wallclock hit]",
    }


def test_report_beside_a_poll_at_the_ceiling_has_one_winner(ledger: Ledger) -> None:
    group = dispatch(ledger)
    together, won = threading.Barrier(2), {}

    def polls():
        together.wait()
        won["poll"] = "a" in poll_now(ledger, group, at=90)[1]

    def reports():
        together.wait()
        won["report"] = report(ledger, group, "a", at=90)

    threads = [threading.Thread(target=polls), threading.Thread(target=reports)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won["poll"] is not won["report"]
    phase = rows_of(ledger, group)["a"].phase
    assert phase is (TrackPhase.COMPLETE if won["report"] else TrackPhase.TAPPED_OUT)


def test_tracks_of_the_run_itself_begin_a_new_round_after_a_clear_behind_the_end(ledger: Ledger) -> None:
    with ledger.write() as tx:
        first = track_groups.reopen_undispatched(tx, PLACE, clear_number=0, now=after(0))
        tracks.begin(tx, first.id, "a", dag_id="night", run_id="run-1", task="a", now=after(0))
    with ledger.write() as tx:
        assert track_groups.reopen_undispatched(tx, PLACE, clear_number=1, now=after(9)) == first
    report(ledger, first, "a", at=20)
    with ledger.write() as tx:
        second = track_groups.reopen_undispatched(tx, PLACE, clear_number=2, now=after(99))
        assert track_groups.reopen_undispatched(tx, PLACE, clear_number=2, now=after(200)) == second
    assert second.id != first.id
    assert second.dispatched_at == after(99)


def test_advice_comes_from_the_recorded_durations(ledger: Ledger) -> None:
    for number in range(3):
        place = GroupPlace(dag_id="night", run_id=f"run-{number}")
        with ledger.write() as tx:
            group = track_groups.record(
                tx, place, DISPATCHED, clear_number=0, clock=Clock.DISPATCH, now=after(number * 100_000)
            )
            track_groups.remember(tx, group, **track_groups.settings_json(SETTINGS))
        report(ledger, group, "a", at=number * 100_000 + 3600)
        report(ledger, group, "b", at=number * 100_000 + 7200 + number)
    advice = advise_from_ledger(ledger, "night")
    assert advice.runs == 3
    assert advice.settings.first_poll == timedelta(hours=1)
    assert advice.settings.ceiling == timedelta(hours=4, minutes=1)


def test_advice_says_when_the_ceiling_is_hit_so_often_that_budgets_are_wrong(ledger: Ledger) -> None:
    for number in range(2):
        place = GroupPlace(dag_id="night", run_id=f"run-{number}")
        with ledger.write() as tx:
            group = track_groups.record(
                tx, place, DISPATCHED, clear_number=0, clock=Clock.DISPATCH, now=after(0)
            )
            track_groups.remember(tx, group, **track_groups.settings_json(SETTINGS))
        report(ledger, group, "a", at=60)
        report(ledger, group, "b", TrackPhase.TAPPED_OUT, at=90, reason=CEILING_REASON)
    advice = advise_from_ledger(ledger, "night")
    assert advice.budgets_wrong
    assert advice.settings.ceiling <= SETTINGS.ceiling
    assert "b (2)" in " ".join(advice.notes)


def test_advice_for_an_unknown_dag_names_those_that_have_barriers(ledger: Ledger) -> None:
    dispatch(ledger)
    with pytest.raises(NoTracksRecordedError, match="DAGs with barriers: night"):
        advise_from_ledger(ledger, "nigth")


def test_unfinished_file_reports_are_not_forgotten_between_polls(ledger: Ledger) -> None:
    """Field report 38: a finished track whose source later has nothing to say stays finished."""
    group = dispatch(ledger)
    with ledger.write() as tx:
        decision = poll(
            [A, B], START, after(20), SETTINGS, reports={"a": TrackReport(TrackPhase.COMPLETE)}, finished={}
        )
        tracks.record_poll(tx, group.id, decision)
    decision, _ = poll_now(ledger, group, at=30)
    assert decision.phases["a"] is TrackPhase.COMPLETE


def test_clean_removes_old_groups_that_are_over_and_no_others(ledger: Ledger) -> None:
    over = dispatch(ledger)
    report(ledger, over, "a", at=20)
    report(ledger, over, "b", at=30)
    poll_now(ledger, over, at=35)
    waiting = dispatch(ledger, place=GroupPlace(dag_id="night", run_id="waits"))
    report(ledger, waiting, "a", at=20)
    young = dispatch(ledger, place=GroupPlace(dag_id="night", run_id="young"), at=5000)
    report(ledger, young, "a", at=5020)
    report(ledger, young, "b", at=5030)
    with ledger.write() as tx:
        assert track_groups.count_over(tx, after(4000)) == 1
        assert track_groups.remove_over(tx, after(4000)) == 1
        assert [g.id for g in track_groups.of_dag(tx, "night")] == [young.id, waiting.id]
        assert tracks.polls_of(tx, over.id) == []

"""The barrier on the ledger: the document's example, and what a night may bring."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_relay import TrackBarrierSensor, TrackRun
from airflow_relay.core.barrier import (
    CEILING_REASON,
    RUN_DIED_REASON,
    TRACK_LIMIT_REASON,
    BarrierSettingsError,
    Track,
    TrackPhase,
    TrackResult,
)
from airflow_relay.ledger import tracks
from airflow_relay.ledger.errors import LedgerUnreachableError
from airflow_relay.ledger.track_groups import DispatchConflictError
from airflow_relay.operators.dispatch_tracks import DispatchTracks
from support.track_tasks import DISPATCH, FakeAirflow

NAMES = ("track_b", "track_c", "track_d", "track_e")
RUNS = [TrackRun(name=name, dag_id=f"dag_{name}") for name in NAMES]


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def dispatch(airflow: FakeAirflow, runs=RUNS) -> None:
    DispatchTracks(task_id="dispatch", tracks=runs).execute(airflow.context(task="dispatch"))


def barrier(**settings) -> TrackBarrierSensor:
    return TrackBarrierSensor(task_id="barrier", **{"tracks": RUNS, **settings})


def complete(airflow: FakeAirflow, name: str, *, result=None) -> bool:
    details = {} if result is None else {"result": result}
    with airflow.ledger.write() as tx:
        end = TrackResult(name, TrackPhase.COMPLETE, None, airflow.now, details)
        return tracks.end(tx, airflow.group().id, end, now=airflow.now)


def test_the_documents_example_polls_at_3h_and_each_half_hour_until_the_last_track_has_ended(airflow):
    """C ends before 3 h, D before 3.5 h, B before 4 h, E at 5.2 h: the barrier opens at 5.5 h."""
    dispatch(airflow)
    sensor, ends = barrier(), {"track_c": 2.5, "track_d": 3.2, "track_b": 3.9, "track_e": 5.2}
    assert airflow.poke(sensor) == DISPATCH + hours(3), "no poll before the first one"
    polled = [3, 3.5, 4, 4.5, 5, 5.5]
    for here, there in zip(polled, [*polled[1:], None], strict=True):
        for name, end in ends.items():
            if end <= here and not airflow.rows()[name].is_final:
                airflow.at(hours=end)
                complete(airflow, name, result={"from": name})
        airflow.at(hours=here)
        pushed = airflow.poke(sensor)
        if there is not None:
            assert pushed == DISPATCH + hours(there)
    assert pushed["outcome"] == "proceed"
    assert pushed["elapsed_h"] == 5.5
    assert pushed["tapped_out"] == {}
    assert pushed["tracks"]["track_e"] == {
        "phase": "complete",
        "reason": None,
        "completed_at": (DISPATCH + hours(5.2)).isoformat(),
        "result": {"from": "track_e"},
    }
    assert [(p.elapsed_h, p.done) for p in airflow.polls()] == [(h, h == 5.5) for h in polled]


def test_ceiling_taps_out_what_is_left_and_says_who(airflow):
    dispatch(airflow)
    airflow.at(hours=2)
    complete(airflow, "track_c")
    airflow.at(hours=13.9)
    assert airflow.poke(barrier()) == DISPATCH + hours(14), "the last poll is pulled forward to the ceiling"
    airflow.at(hours=14)
    pushed = airflow.poke(barrier())
    assert pushed["outcome"] == "force_proceed"
    assert pushed["tapped_out"] == dict.fromkeys(("track_b", "track_d", "track_e"), CEILING_REASON)
    assert airflow.polls()[-1].done is False


def test_late_poll_far_behind_the_ceiling_taps_out_too(airflow):
    """Field report 42: hours without a free worker; a late poll just happens late."""
    dispatch(airflow)
    airflow.at(hours=40)
    assert airflow.poke(barrier())["outcome"] == "force_proceed"
    assert {row.reason for row in airflow.rows().values()} == {CEILING_REASON}


def test_cleared_barrier_repeats_its_answer_and_taps_out_nobody_again(airflow):
    dispatch(airflow)
    airflow.at(hours=14)
    first = airflow.poke(barrier())
    airflow.clear_number = 1
    airflow.at(hours=30)
    again = airflow.poke(barrier())
    assert again["tracks"] == first["tracks"]
    assert again["tapped_out"] == first["tapped_out"]
    assert [len(p.tapped) for p in airflow.polls()] == [4, 0]


def test_clear_of_dispatch_and_barrier_in_the_middle_does_not_move_the_ceiling(airflow):
    dispatch(airflow)
    airflow.at(hours=10)
    airflow.clear_number = 1
    dispatch(airflow)
    assert len(airflow.triggered) == 4
    assert airflow.poke(barrier()) == DISPATCH + hours(10.5)
    airflow.at(hours=14)
    assert airflow.poke(barrier())["outcome"] == "force_proceed"


def test_track_past_its_own_budget_is_tapped_out_at_the_next_poll(airflow):
    runs = [TrackRun(name="a", dag_id="x", max_wallclock=hours(4)), TrackRun(name="b", dag_id="y")]
    dispatch(airflow, runs)
    airflow.at(hours=4)
    airflow.poke(barrier(tracks=["a", "b"]))
    assert airflow.rows()["a"].reason == TRACK_LIMIT_REASON, "the budget is the dispatch's, recorded once"
    assert not airflow.rows()["b"].is_final


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (None, RUN_DIED_REASON),
        ({"work": "failed"}, RUN_DIED_REASON),
        ({"work": "success", "more": "skipped"}, RUN_DIED_REASON),
        ({"work": "failed", "more": "running"}, RUN_DIED_REASON),
        ({"work": "up_for_retry"}, None),
        ({"work": "running", "more": None}, None),
        ({"work": None}, None),
    ],
    ids=["deleted", "failed", "over", "its task failed", "retries", "runs", "queued"],
)
def test_track_whose_run_died_without_reporting_is_tapped_out_at_the_next_poll(airflow, states, reason):
    dispatch(airflow)
    row = airflow.rows()["track_b"]
    with airflow.ledger.write() as tx:
        tracks.begin(
            tx,
            row.group_id,
            row.name,
            dag_id=row.dag_id,
            run_id=row.run_id,
            task="work",
            now=airflow.at(hours=1),
        )
    del airflow.states[row.dag_id, row.run_id]
    if states is not None:
        airflow.states[row.dag_id, row.run_id] = states
    airflow.at(hours=3)
    airflow.poke(barrier())
    assert airflow.rows()["track_b"].reason == reason
    assert airflow.polls()[0].tapped == (() if reason is None else ("track_b",))


def test_run_that_reports_and_ends_between_the_two_readings_does_not_look_dead(airflow, monkeypatch):
    dispatch(airflow)
    states = airflow.task_states

    def ends_meanwhile(dag_id, run_ids):
        found = {run_id: {"work": "success"} for run_id in states(dag_id, run_ids)}
        for name in NAMES:
            complete(airflow, name)
        return found

    monkeypatch.setattr("airflow_relay.compat.task_states", ends_meanwhile)
    airflow.at(hours=3)
    assert airflow.poke(barrier())["tapped_out"] == {}


def test_run_that_was_not_triggered_yet_is_not_dead(airflow):
    airflow.missing = {"dag_track_b"}
    with pytest.raises(RuntimeError, match="dag_track_b"):
        dispatch(airflow)
    airflow.at(hours=3)
    assert airflow.poke(barrier()) == DISPATCH + hours(3.5)
    assert "dag_track_b" not in airflow.asked
    assert not airflow.rows()["track_b"].is_final


def test_no_tracks_nothing_to_wait_for(airflow):
    assert airflow.poke(barrier(tracks=[])) == {
        "outcome": "proceed",
        "elapsed_h": 0.0,
        "tracks": {},
        "tapped_out": {},
    }


def test_all_done_before_the_first_poll_opens_a_barrier_that_looks_early(airflow):
    dispatch(airflow)
    airflow.at(hours=1)
    for name in NAMES:
        complete(airflow, name)
    assert airflow.poke(barrier())["outcome"] == "proceed"
    assert [p.done for p in airflow.polls()] == [True]


def test_barrier_without_a_dispatch_starts_the_clock_at_its_first_look_once(airflow):
    """Field report 39: a first poke that crashed must not move the start for ever."""
    sensor = barrier(tracks=["a"])
    assert airflow.poke(sensor) == DISPATCH + hours(3)
    airflow.at(hours=5)
    airflow.poke(sensor)
    assert airflow.group().dispatched_at == DISPATCH
    airflow.at(hours=14)
    assert airflow.poke(sensor)["tapped_out"] == {"a": CEILING_REASON}


def test_barrier_that_waits_for_a_track_nobody_dispatched_fails_at_its_first_look(airflow):
    dispatch(airflow)
    with pytest.raises(DispatchConflictError, match="typo"):
        airflow.poke(barrier(tracks=[*RUNS, Track("typo")]))


def test_changed_settings_hold_from_the_next_poll_on(airflow):
    dispatch(airflow)
    airflow.poke(barrier())
    airflow.at(hours=6)
    assert airflow.poke(barrier(ceiling=hours(6)))["outcome"] == "force_proceed"
    assert airflow.group().settings["ceiling"] == 6 * 3600


def test_reported_track_that_nobody_waits_for_is_named_and_holds_nothing_up(airflow, caplog):
    dispatch(airflow)
    airflow.at(hours=3)
    for name in NAMES:
        complete(airflow, name)
    pushed = airflow.poke(barrier(tracks=RUNS[:2]))
    assert pushed["outcome"] == "proceed"
    assert set(pushed["tracks"]) == {"track_b", "track_c"}
    assert "not among the tracks waited for, and so ignored: track_d, track_e" in caplog.text


def test_each_poll_is_appended_to_the_log_as_a_json_line(airflow, tmp_path):
    dispatch(airflow)
    path = tmp_path / "new" / "poll_log.jsonl"
    sensor = barrier(poll_log_path=f"file://{path}")
    for hour in (0, 3, 3.5):
        airflow.at(hours=hour)
        airflow.poke(sensor)
    for name in NAMES:
        complete(airflow, name)
    airflow.at(hours=4)
    airflow.poke(sensor)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["elapsed_h"], line["done"]) for line in lines] == [(3, False), (3.5, False), (4, True)]
    assert lines == [p.log_line() for p in airflow.polls()]
    assert set(lines[0]) == {"ts", "phases", "elapsed_h", "done"}


def test_poll_log_that_cannot_be_written_stops_no_barrier(airflow, tmp_path, caplog):
    dispatch(airflow)
    (tmp_path / "file").touch()
    airflow.at(hours=3)
    again = airflow.poke(barrier(poll_log_path=f"file://{tmp_path}/file/poll_log.jsonl"))
    assert again == DISPATCH + hours(3.5)
    assert "could not be appended" in caplog.text


def test_poll_log_in_a_store_without_append_is_written_anew(monkeypatch, tmp_path):
    from airflow.sdk import ObjectStoragePath

    from airflow_relay.sensors.poll_log import append_poll

    really = ObjectStoragePath.open

    def no_append(self, mode="r", **kwargs):
        if "a" in mode:
            raise NotImplementedError
        return really(self, mode, **kwargs)

    monkeypatch.setattr(ObjectStoragePath, "open", no_append)
    line = {"ts": 1.0, "phases": {}, "elapsed_h": 0.0, "done": True}
    assert append_poll(f"file://{tmp_path}/log.jsonl", line)
    assert append_poll(f"file://{tmp_path}/log.jsonl", line)
    assert (tmp_path / "log.jsonl").read_text().splitlines() == [json.dumps(line)] * 2


def test_tests_clock_offset_is_not_told_to_airflow(airflow, monkeypatch):
    monkeypatch.setenv("RELAY_TEST_MODE", "1")
    monkeypatch.setenv("RELAY_CLOCK_OFFSET", "3600")
    dispatch(airflow)
    assert airflow.poke(barrier()) == DISPATCH + hours(2)


@pytest.mark.parametrize("field", ["status_path", "poll_log_path"])
@pytest.mark.parametrize("rendered", ["", "None", None, "state/status.json"])
def test_template_that_renders_to_no_absolute_path_fails_at_the_first_look(airflow, field, rendered):
    sensor = barrier(tracks=["a"], **{field: "{{ params.path }}"})
    setattr(sensor, field, rendered)
    with pytest.raises(BarrierSettingsError, match=field):
        airflow.poke(sensor)


def test_ledger_that_does_not_answer_is_waited_for_without_using_a_try(airflow, monkeypatch):
    def silent(*_args, **_kwargs):
        raise LedgerUnreachableError("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(tracks, "mark_triggered", silent)
        with pytest.raises(AirflowRescheduleException):
            dispatch(airflow)
    dispatch(airflow)
    assert [t[0] for t in airflow.triggered] == [run.dag_id for run in RUNS], "each once"
    airflow.at(hours=3)
    with monkeypatch.context() as outage:
        outage.setattr(tracks, "record_poll", silent)
        assert isinstance(airflow.poke(barrier()), datetime)
    assert airflow.polls() == []
    assert airflow.poke(barrier()) == DISPATCH + hours(3.5)


def test_budget_may_be_a_number_of_seconds(airflow):
    dispatch(airflow, [TrackRun(name="a", dag_id="x", max_wallclock=3 * 3600)])
    airflow.at(hours=3)
    assert airflow.poke(barrier(tracks=["a"]))["tapped_out"] == {"a": TRACK_LIMIT_REASON}

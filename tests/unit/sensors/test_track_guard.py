"""``track()`` always reports an end, and ``DispatchTracks`` starts each track once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from airflow.sdk import RetryPolicy
from airflow.sdk.definitions.retry_policy import RetryDecision
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_relay import DispatchTracks, TrackBarrierSensor, TrackRun
from airflow_relay.compat import TargetDagError
from airflow_relay.core.barrier import TrackPhase
from airflow_relay.ledger.errors import LedgerIdentityError, LedgerUnreachableError
from airflow_relay.ledger.tracks import TrackResultError
from airflow_relay.tracks import TrackNameError, track
from support.track_tasks import OWN, FakeAirflow

RUNS = [TrackRun(name="a", dag_id="dag_a", conf={"depth": 3}), TrackRun(name="b", dag_id="dag_b")]


def dispatch(airflow: FakeAirflow, **arguments):
    return DispatchTracks(task_id="dispatch", **{"tracks": RUNS, **arguments}).execute(
        airflow.context(task="dispatch")
    )


def context_of(airflow: FakeAirflow, name: str, **arguments):
    dag_id, run_id, conf = next(t for t in airflow.triggered if t[0] == f"dag_{name}")
    return airflow.context(conf=conf, run=(dag_id, run_id), **arguments)


@pytest.fixture
def context(airflow):
    dispatch(airflow)
    return context_of(airflow, "a")


def end_of(airflow, name="a"):
    row = airflow.rows()[name]
    return row.phase, row.reason


def test_conf_of_a_track_holds_ids_and_what_its_author_gave(airflow):
    dispatch(airflow)
    ids = {"group": airflow.group().id, "track": "a", "ledger": airflow.ledger.ledger_id}
    assert airflow.triggered[0][2] == {"depth": 3, "relay_track": ids}


def test_complete_with_a_result(airflow, context):
    airflow.at(hours=1)
    with track(context=context) as this:
        assert this.name == "a"
        assert airflow.rows()["a"].phase is TrackPhase.RUNNING
        airflow.at(hours=2)
        this.result = {"pages": 3}
    row = airflow.rows()["a"]
    assert (row.phase, row.result, row.task) == (TrackPhase.COMPLETE, {"pages": 3}, "work")
    assert (row.finished_at - row.started_at).total_seconds() == 3600


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no pages"), "ValueError: no pages"),
        (AirflowSkipException("nothing new"), "skipped: nothing new"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("bad \0 text \ud800"), "ValueError: bad  text ?"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 1988),
    ],
)
def test_error_taps_out_with_its_reason_and_is_not_hidden(airflow, context, error, reason):
    with pytest.raises(type(error)), track(context=context):
        raise error
    assert end_of(airflow) == (TrackPhase.TAPPED_OUT, reason)


def test_track_may_give_up_without_an_error(airflow, context):
    with track(context=context) as this:
        this.tap_out("source offline")
    assert end_of(airflow) == (TrackPhase.TAPPED_OUT, "source offline")


@pytest.mark.parametrize("error", [ValueError("flaky"), SystemExit(1)])
def test_error_after_which_the_task_is_retried_is_no_end(airflow, error):
    dispatch(airflow)
    with pytest.raises(type(error)), track(context=context_of(airflow, "a", should_retry=True)):
        raise error
    assert end_of(airflow) == (TrackPhase.RUNNING, None)
    with track(context=context_of(airflow, "a")):
        pass
    assert end_of(airflow) == (TrackPhase.COMPLETE, None)


def test_error_that_is_not_retried_although_tries_are_left_is_an_end(airflow):
    dispatch(airflow)
    context = context_of(airflow, "a", should_retry=True)
    with pytest.raises(AirflowFailException), track(context=context):
        raise AirflowFailException("hopeless")
    assert end_of(airflow)[0] is TrackPhase.TAPPED_OUT


@pytest.mark.parametrize(
    ("policy", "phase"),
    [
        (lambda _: RetryDecision.fail(), TrackPhase.TAPPED_OUT),
        (lambda _: RetryDecision.default(), TrackPhase.RUNNING),
        (lambda _: 1 / 0, TrackPhase.RUNNING),
    ],
)
def test_retry_policy_of_the_task_is_asked(airflow, policy, phase):
    class Policy(RetryPolicy):
        def evaluate(self, exception, try_number, max_tries, context=None):
            return policy(exception)

    dispatch(airflow)
    context = context_of(airflow, "a", should_retry=True)
    context["ti"].task.retry_policy = Policy()
    with pytest.raises(ValueError, match="x"), track(context=context):
        raise ValueError("x")
    assert end_of(airflow)[0] is phase


def test_airflow_still_tells_a_task_whether_it_is_retried():
    """``compat.will_be_retried`` reads what only Airflow's own task runner knows."""
    from airflow.sdk.api.datamodels._generated import TIRunContext
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    assert {"should_retry", "max_tries"} <= set(TIRunContext.model_fields)
    assert "_ti_context_from_server" in RuntimeTaskInstance.__private_attributes__ | dict.fromkeys(
        RuntimeTaskInstance.model_fields
    )


def test_deferral_and_reschedule_are_no_ends(airflow, context):
    for goes_on in (
        TaskDeferred(trigger=None, method_name="resume"),
        AirflowRescheduleException(airflow.now),
    ):
        with pytest.raises(type(goes_on)), track(context=context):
            raise goes_on
    assert end_of(airflow) == (TrackPhase.RUNNING, None)


def test_end_that_the_barrier_gave_stands_and_the_late_one_is_told(airflow, context, caplog):
    with track(context=context):
        airflow.at(hours=14)
        airflow.poke(TrackBarrierSensor(task_id="barrier", tracks=RUNS))
    assert end_of(airflow) == (TrackPhase.TAPPED_OUT, "[TAPPED — wallclock ceiling hit]")
    assert "that end stands" in caplog.text


def test_result_that_cannot_be_kept_fails_the_task_and_ends_the_track(airflow, context):
    with pytest.raises(TrackResultError), track(context=context) as this:
        this.result = {1, 2}
    phase, reason = end_of(airflow)
    assert phase is TrackPhase.TAPPED_OUT
    assert "not JSON" in reason


def test_ledger_that_is_down_at_the_end_does_not_hide_the_error(airflow, context, monkeypatch, caplog):
    from airflow_relay import tracks

    guard = track(context=context)
    guard.__enter__()
    monkeypatch.setattr(tracks, "get_ledger", lambda: 1 / 0)
    error = ValueError("the real one")
    assert not guard.__exit__(ValueError, error, None)
    assert "could not report its end" in caplog.text


@pytest.fixture
def outage(airflow, monkeypatch):
    """The ledger is silent until somebody has waited this often; returns the waits."""
    from airflow_relay import tracks

    waits, left = [], [0]

    def get_ledger():
        if left[0] > 0:
            raise LedgerUnreachableError("The ledger did not answer.")
        return airflow.ledger

    def sleep(seconds):
        waits.append(seconds)
        left[0] -= 1

    monkeypatch.setattr(tracks.time, "sleep", sleep)
    monkeypatch.setattr(tracks, "get_ledger", get_ledger)
    return waits, left


def test_ledger_that_is_silent_for_a_minute_costs_no_track_its_begin_or_end(airflow, context, outage):
    waits, left = outage
    left[0] = 2
    with track(context=context) as this:
        this.result = {"pages": 3}
        left[0] = 12
    assert airflow.rows()["a"].result == {"pages": 3}
    assert len(waits) == 14


def test_ledger_that_stays_silent_fails_the_task(context, outage):
    guard = track(context=context).__enter__()
    outage[1][0] = 10_000
    with pytest.raises(LedgerUnreachableError):
        guard.__exit__(None, None, None)
    assert sum(outage[0]) == 300


def test_wrong_ledger_or_name_is_refused(airflow, context):
    with pytest.raises(TrackNameError, match="dispatched as track 'a', not as 'b'"):
        track("b", context=context)
    context["dag_run"].conf["relay_track"]["ledger"] = "another"
    with pytest.raises(LedgerIdentityError, match="relay_ledger"), track(context=context):
        pass


def test_run_that_nobody_dispatched_does_its_work_and_reports_to_nobody(airflow):
    with track(context=airflow.context()) as this:
        this.result = 1
    assert this.name is None


def test_mapped_tasks_of_the_barriers_own_run_are_tracks_too(airflow):
    for index, name in enumerate(("x", "y")):
        with track(name, context=airflow.context(task="map", map_index=index)) as this:
            this.result = index
    assert {row.task for row in airflow.rows().values()} == {"map_0", "map_1"}
    airflow.at(hours=3)
    pushed = airflow.poke(TrackBarrierSensor(task_id="barrier", tracks=["x", "y"]))
    assert {n: t["result"] for n, t in pushed["tracks"].items()} == {"x": 0, "y": 1}


def test_dead_task_of_the_barriers_own_run_is_noticed_though_the_run_lives(airflow):
    context = airflow.context(task="work_x")
    track("x", context=context).__enter__()._termination.forget()
    airflow.states[OWN] = {"work_x": "failed", "barrier": "running"}
    airflow.at(hours=3)
    pushed = airflow.poke(TrackBarrierSensor(task_id="barrier", tracks=["x"]))
    assert list(pushed["tapped_out"]) == ["x"]


def test_clear_of_everything_after_the_end_waits_for_the_tracks_of_this_run_again(airflow):
    with track("x", context=airflow.context(task="work_x")):
        pass
    sensor = TrackBarrierSensor(task_id="barrier", tracks=["x"])
    airflow.at(hours=3)
    assert airflow.poke(sensor)["outcome"] == "proceed"
    first = airflow.group()
    airflow.clear_number = 1
    airflow.at(hours=20)
    airflow.states[OWN] = {"work_x": "success", "barrier": "running"}
    assert airflow.poke(sensor)["outcome"] == "proceed", "only the barrier was cleared"
    airflow.states[OWN] = {"work_x": None, "barrier": "running"}
    assert airflow.poke(sensor) == airflow.now + sensor.barrier.first_poll, "the track is to run again"
    assert airflow.group().id != first.id
    with track("x", context=airflow.context(task="work_x")):
        pass
    assert airflow.poke(sensor)["outcome"] == "proceed"


def work(airflow, name, *, fails=False):
    """One own-run track's task, and what Airflow says of it then."""
    airflow.states.setdefault(OWN, {})[f"work_{name}"] = "failed" if fails else "success"
    with contextlib.suppress(ValueError), track(name, context=airflow.context(task=f"work_{name}")) as this:
        this.result = f"{name} at clear {airflow.clear_number}"
        if fails:
            raise ValueError("no pages")


@pytest.mark.parametrize("looks_first", [False, True])
def test_clear_of_one_track_of_this_run_after_the_end_waits_for_that_one_only(airflow, looks_first):
    sensor = TrackBarrierSensor(task_id="barrier", tracks=["x", "y"])
    work(airflow, "x")
    work(airflow, "y", fails=True)
    airflow.at(hours=3)
    assert list(airflow.poke(sensor)["tapped_out"]) == ["y"]
    for airflow.clear_number, again, phases in ((1, "y", ["y at clear 1", "x at clear 0"]), (2, "x", None)):
        airflow.at(hours=20 * airflow.clear_number)
        airflow.states[OWN][f"work_{again}"] = None
        if looks_first:
            assert airflow.poke(sensor) == airflow.now + sensor.barrier.first_poll
            assert not airflow.rows()[again].is_final
        work(airflow, again)
        pushed = airflow.poke(sensor)
        assert pushed["tapped_out"] == {}
        if phases:
            assert {t["result"] for t in pushed["tracks"].values()} == set(phases)
    assert pushed["tracks"]["x"]["result"] == "x at clear 2"
    assert pushed["tracks"]["y"]["result"] == "y at clear 1", "carried over twice"


def test_cleared_track_of_this_run_that_dies_before_it_begins_again_does_not_keep_its_earlier_end(airflow):
    sensor = TrackBarrierSensor(task_id="barrier", tracks=["x", "y"])
    work(airflow, "x")
    work(airflow, "y")
    airflow.clear_number = 1
    airflow.at(hours=20)
    work(airflow, "x")
    airflow.states[OWN]["work_y"] = "failed"
    assert airflow.poke(sensor)["tapped_out"] == {"y": "[TAPPED — run ended without reporting]"}


def test_cleared_task_that_follows_up_in_the_dispatchs_own_group_does_not_hide_the_dispatch(airflow):
    dispatch(airflow)
    for name in "ab":
        with track(context=context_of(airflow, name)):
            pass
    for airflow.clear_number in (0, 1):
        work(airflow, "further")
    assert airflow.poke(TrackBarrierSensor(task_id="barrier", tracks=RUNS))["outcome"] == "proceed"
    airflow.clear_number = 2
    dispatch(airflow)
    assert len(airflow.triggered) == 4


def test_retry_of_the_dispatch_starts_only_what_is_missing(airflow):
    airflow.missing = {"dag_a"}
    with pytest.raises(TargetDagError, match="dag_a"):
        dispatch(airflow)
    assert [t[0] for t in airflow.triggered] == ["dag_b"]
    airflow.missing = set()
    airflow.at(hours=1)
    done = dispatch(airflow)
    assert [t[0] for t in airflow.triggered] == ["dag_b", "dag_a"]
    assert done["dispatched_at"] == airflow.group().dispatched_at.isoformat()
    assert airflow.group().dispatched_at < airflow.now


def test_run_that_exists_already_is_found_not_started_twice(airflow, monkeypatch):
    """A dispatch killed between the trigger and its record."""
    from airflow_relay.operators import dispatch_tracks

    def killed(*_):
        raise SystemExit(137)

    with monkeypatch.context() as crashing:
        crashing.setattr(dispatch_tracks.tracks, "mark_triggered", killed)
        with pytest.raises(SystemExit):
            dispatch(airflow)
    dispatch(airflow)
    assert [t[0] for t in airflow.triggered] == ["dag_a", "dag_b"]
    assert all(row.triggered_at for row in airflow.rows().values())


def test_paused_track_is_warned_about(airflow, caplog):
    airflow.paused = {"dag_a"}
    dispatch(airflow)
    assert "'dag_a' is paused" in caplog.text


SIGTERM_PROGRAM = """
    import os, signal, sys
    from datetime import datetime, timezone
    from types import SimpleNamespace
    from airflow_relay import tracks
    from airflow_relay.ledger.store import Ledger

    ledger = Ledger(sys.argv[1], None)
    tracks.get_ledger = lambda: ledger
    run = SimpleNamespace(dag_id="night", run_id="run-1", conf={{}}, clear_number=0)
    ti = SimpleNamespace(task_id="work", map_index=-1, task=SimpleNamespace(), _ti_context_from_server=None)
    {before}
    try:
        with tracks.track("a", context={{"dag_run": run, "ti": ti}}):
            {inside}
    finally:
        print("left", flush=True)
"""


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("", "os.kill(os.getpid(), signal.SIGTERM); signal.pause()"),
        (
            "signal.signal(signal.SIGTERM, lambda *_: print('on_kill', flush=True))",
            "os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
        ),
    ],
    ids=["default", "Airflow's handler"],
)
def test_sigterm_ends_the_track_and_the_block(airflow, ledger, before, inside):
    program = textwrap.dedent(SIGTERM_PROGRAM.format(before=before, inside=inside))
    done = subprocess.run(
        [sys.executable, "-c", program, ledger.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ,
    )
    assert "left" in done.stdout, done.stderr
    assert ("on_kill" in done.stdout) is bool(before)
    phase, reason = end_of(airflow)
    assert phase is TrackPhase.TAPPED_OUT
    assert "SIGTERM" in reason


def test_child_process_dies_by_sigterm_and_does_not_end_its_parents_track(airflow, ledger):
    inside = """child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM); os._exit(0)
            print("child ended by", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)"""
    program = textwrap.dedent(SIGTERM_PROGRAM.format(before="", inside=inside))
    done = subprocess.run(
        [sys.executable, "-c", program, ledger.url], capture_output=True, text=True, timeout=120, check=False
    )
    assert f"child ended by {-signal.SIGTERM}" in done.stdout, done.stderr
    assert end_of(airflow) == (TrackPhase.COMPLETE, None)


def test_sigterm_is_given_back_after_the_track(airflow, context):
    before = signal.getsignal(signal.SIGTERM)
    with track(context=context):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before

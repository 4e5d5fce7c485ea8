"""Contradicting settings are refused when the DAG file is parsed, by name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import DAG, task

from airflow_relay import DispatchTracks, TrackBarrierSensor, TrackRun
from airflow_relay.core.barrier import BarrierSettingsError, Track


def barrier(**settings):
    return TrackBarrierSensor(task_id="barrier", **{"tracks": ["a", "b"], **settings})


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("first_poll", {"first_poll": timedelta(hours=15)}),
        ("first_poll", {"first_poll": -1}),
        ("first_poll", {"first_poll": float("nan")}),
        ("first_poll", {"first_poll": "3h"}),
        ("poll_interval", {"poll_interval": 0}),
        ("poll_interval", {"poll_interval": timedelta(seconds=-30)}),
        ("poll_interval", {"poll_interval": float("nan")}),
        ("poll_interval", {"poll_interval": float("inf")}),
        ("ceiling", {"ceiling": 0, "first_poll": 0}),
        ("ceiling", {"ceiling": timedelta(days=4000)}),
        ("mode", {"mode": "poke"}),
        ("soft_fail", {"soft_fail": True}),
        ("never_fail", {"never_fail": True}),
        ("silent_fail", {"silent_fail": True}),
        ("exponential_backoff", {"exponential_backoff": True}),
        ("max_wait", {"max_wait": 60}),
        ("poke_interval", {"poke_interval": 60}),
        ("deferrable", {"deferrable": True}),
        ("timeout", {"timeout": timedelta(hours=13)}),
        ("timeout", {"timeout": float("nan")}),
        ("status_path", {"status_path": "state/status.json"}),
        ("poll_log_path", {"poll_log_path": "poll_log.jsonl"}),
        ("tracks", {"tracks": "ab"}),
        ("tracks", {"tracks": ["a", "a"]}),
        ("tracks", {"tracks": [""]}),
        ("max_wallclock", {"tracks": [Track("a", timedelta(0))]}),
        ("max_wallclock", {"tracks": [Track("a", timedelta(hours=15))]}),
    ],
)
def test_impossible_setting_is_refused_by_name(field, settings):
    with pytest.raises(BarrierSettingsError, match=field):
        barrier(**settings)


@pytest.mark.parametrize(
    ("name", "value"), [("soft_fail", True), ("never_fail", True), ("silent_fail", True), ("mode", "poke")]
)
def test_refused_from_default_args_as_well(name, value):
    with (
        DAG("refused", schedule=None, default_args={name: value}),
        pytest.raises(BarrierSettingsError, match=name),
    ):
        barrier()


def test_retries_of_default_args_are_respected():
    with DAG("respected", schedule=None, default_args={"retries": 1}):
        assert barrier().retries == 1
        assert DispatchTracks(task_id="dispatch", tracks=[]).retries == 1
    assert barrier().retries == 5


def test_positional_arguments_are_refused():
    with pytest.raises(TypeError):
        TrackBarrierSensor(["a"], task_id="barrier")  # type: ignore[misc]


def test_defaults_are_those_of_the_document_and_the_mode_frees_the_worker():
    made = barrier()
    assert (made.barrier.first_poll, made.barrier.poll_interval, made.barrier.ceiling) == (
        timedelta(hours=3),
        timedelta(minutes=30),
        timedelta(hours=14),
    )
    assert made.reschedule
    assert made.timeout > made.barrier.ceiling.total_seconds()


def test_harmless_settings_that_say_the_same_are_accepted():
    made = barrier(mode="reschedule", soft_fail=False, timeout=timedelta(hours=14), retries=2)
    assert made.retries == 2


@pytest.mark.parametrize(
    "tracks",
    [
        [TrackRun(name="a", dag_id="x"), TrackRun(name="a", dag_id="y")],
        [Track("a")],
        [TrackRun(name="a", dag_id="x", max_wallclock=timedelta(0))],
        [TrackRun(name="a", dag_id="x", max_wallclock=timedelta(days=4000))],
    ],
)
def test_dispatch_refuses_impossible_tracks(tracks):
    with pytest.raises(BarrierSettingsError):
        DispatchTracks(task_id="dispatch", tracks=tracks)


def test_path_that_a_task_returns_makes_the_barrier_wait_for_that_task():
    with DAG("downstream", schedule=None):

        @task
        def where():
            return "/x"

        made = barrier(status_path=where())
    assert made.upstream_task_ids == {"where"}

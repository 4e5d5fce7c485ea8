"""A barrier over a status.json that programs outside Airflow write."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from airflow_relay import DispatchTracks, TrackBarrierSensor, TrackRun
from airflow_relay.core.barrier import CEILING_REASON, TrackPhase
from airflow_relay.ledger.track_groups import DispatchConflictError
from airflow_relay.sensors import track_sources
from support.track_tasks import DISPATCH

NAMES = ["track_a", "track_b"]
EPOCH = DISPATCH.timestamp()


@pytest.fixture
def status(tmp_path):
    class StatusFile:
        path = tmp_path / "status.json"

        def write(self, *, epoch=EPOCH, **tracks):
            body = {} if epoch is None else {"dispatch_epoch": epoch}
            self.path.write_text(
                json.dumps(
                    {**body, **{n: t if isinstance(t, dict) else {"phase": t} for n, t in tracks.items()}}
                )
            )

        def barrier(self, **settings):
            return TrackBarrierSensor(
                task_id="barrier",
                **{"tracks": NAMES, "status_path": f"file://{self.path}", **settings},
            )

    return StatusFile()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    waited = []
    monkeypatch.setattr(track_sources.time, "sleep", waited.append)
    return waited


def hours(number):
    return timedelta(hours=number)


def test_barrier_opens_at_the_first_poll_at_which_the_file_has_all_ends(airflow, status):
    status.write(track_a="running", track_b="running")
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3)
    airflow.at(hours=3)
    status.write(track_a={"phase": "complete", "completed_at": EPOCH + 60, "pages": 3}, track_b="running")
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3.5)
    airflow.at(hours=3.5)
    status.write(track_a="running", track_b={"phase": "tapped_out", "reason": "source offline"})
    pushed = airflow.poke(status.barrier())
    assert pushed["outcome"] == "proceed", "a track that changes back does not un-finish"
    assert pushed["tapped_out"] == {"track_b": "source offline"}
    assert pushed["tracks"]["track_a"]["result"] == {"pages": 3}
    assert pushed["tracks"]["track_a"]["completed_at"] == (DISPATCH + timedelta(seconds=60)).isoformat()


@pytest.mark.parametrize("kind", [str, Path], ids=["text", "path"])
def test_local_path_needs_no_scheme(airflow, status, tmp_path, kind):
    status.write(track_a="complete", track_b="complete")
    sensor = status.barrier(status_path=kind(status.path), poll_log_path=kind(tmp_path / "log.jsonl"))
    airflow.at(hours=3)
    assert airflow.poke(sensor)["outcome"] == "proceed"
    assert json.loads((tmp_path / "log.jsonl").read_text())["done"] is True


def test_clock_starts_at_the_files_dispatch(airflow, status):
    status.write(track_a="running", track_b="running", epoch=EPOCH - 2 * 3600)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(1)
    assert airflow.group().dispatched_at == DISPATCH - hours(2)


def test_missing_file_is_normal_before_the_first_poll_and_reported_from_then_on(airflow, status, caplog):
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3)
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []
    airflow.at(hours=3)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3.5)
    assert "there is no status file" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b'{"track_a": {"phase": "complete"}, "track_b": {"phase": "compl',
        b"",
        b"null",
        b"[]",
        b'"complete"',
        b"\xff\xfe\x00",
        b'{"track_a": {"phase": "complete"}, "track_a": {"phase": "running"}, "track_b": {}}',
        b'{"track_a": "complete", "track_b": "complete"}',
        b'{"track_a": {"phase": "done"}, "track_b": {"phase": true}}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_whole_and_sound_is_unknown_this_time_and_logged(airflow, status, caplog, content):
    airflow.poke(status.barrier())
    status.path.write_bytes(content)
    airflow.at(hours=3)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3.5)
    assert not any(row.is_final for row in airflow.rows().values())
    assert [r for r in caplog.records if r.levelname == "WARNING"]


def test_half_written_file_at_the_ceiling_is_read_again_before_anybody_is_tapped_out(
    airflow, status, monkeypatch
):
    status.write(track_a="running", track_b="running")
    airflow.poke(status.barrier())
    status.path.write_text('{"track_a": {"ph')
    monkeypatch.setattr(
        track_sources.time, "sleep", lambda _: status.write(track_a="complete", track_b="complete")
    )
    airflow.at(hours=14)
    assert airflow.poke(status.barrier())["tapped_out"] == {}


def test_file_that_stays_unreadable_is_tapped_out_at_the_ceiling(airflow, status, no_waiting):
    airflow.poke(status.barrier())
    status.path.write_text("{")
    airflow.at(hours=14)
    pushed = airflow.poke(status.barrier())
    assert pushed["tapped_out"] == dict.fromkeys(NAMES, CEILING_REASON)
    assert no_waiting == [1.0, 1.0]


def test_store_that_fails_is_unknown_this_time(airflow, status, monkeypatch, caplog):
    from airflow.sdk import ObjectStoragePath

    def refuse(*_args, **_kwargs):
        raise ConnectionError("the store is down")

    monkeypatch.setattr(ObjectStoragePath, "open", refuse)
    airflow.at(hours=3)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(6)
    assert "ConnectionError: the store is down" in caplog.text


def test_file_of_another_night_opens_no_barrier(airflow, status, caplog):
    status.write(track_a="complete", track_b="complete", epoch=EPOCH - 24 * 3600)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3)
    assert "belongs to an earlier run" in caplog.text
    airflow.at(hours=3)
    status.write(track_a="complete", track_b="complete", epoch=EPOCH + 60)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"


def test_file_that_an_earlier_run_has_waited_for_opens_no_second_barrier(airflow, status, caplog):
    status.write(track_a="complete", track_b="complete")
    airflow.at(hours=3)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"
    airflow.at(hours=4)
    again = airflow.poke(status.barrier(), run=("night", "run-2"))
    assert again == DISPATCH + hours(7)
    assert "whose barrier has waited for this dispatch" in caplog.text


def test_run_that_replaces_a_broken_one_waits_for_the_same_file(airflow, status):
    status.write(track_a="complete", track_b="running")
    airflow.at(hours=3)
    airflow.poke(status.barrier())
    status.write(track_a="complete", track_b="complete")
    airflow.at(hours=4)
    assert airflow.poke(status.barrier(), run=("night", "run-2"))["outcome"] == "proceed"


def test_launching_run_that_is_over_does_not_make_its_external_track_dead(airflow, status):
    runs = [TrackRun(name=name, dag_id=f"launch_{name}") for name in NAMES]
    DispatchTracks(task_id="dispatch", tracks=runs).execute(airflow.context(task="dispatch"))
    for key in airflow.states:
        airflow.states[key] = {"launch": "success"}
    status.write(track_a="running", track_b="running", epoch=EPOCH + 5)
    airflow.at(hours=3)
    assert airflow.poke(status.barrier(tracks=runs)) == DISPATCH + hours(3.5)
    assert {row.phase for row in airflow.rows().values()} == {TrackPhase.PENDING}


def test_leftover_from_before_a_recorded_dispatch_does_not_count(airflow, status, caplog):
    runs = [TrackRun(name=name, dag_id=f"launch_{name}") for name in NAMES]
    DispatchTracks(task_id="dispatch", tracks=runs).execute(airflow.context(task="dispatch"))
    status.write(track_a="complete", track_b="complete", epoch=EPOCH - 3600)
    airflow.at(hours=3)
    assert airflow.poke(status.barrier(tracks=runs)) == DISPATCH + hours(3.5)
    assert "belongs to an earlier run" in caplog.text


def test_huge_details_of_a_track_are_left_out_not_its_end(airflow, status, caplog):
    status.write(track_a={"phase": "complete", "log": "x" * 100_000}, track_b="complete")
    airflow.at(hours=3)
    pushed = airflow.poke(status.barrier())
    assert pushed["tracks"]["track_a"]["result"] is None
    assert "further fields are left out" in caplog.text


def test_unknown_tracks_are_reported(airflow, status, caplog):
    status.write(track_a="complete", track_b="complete", track_z="running")
    airflow.at(hours=3)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"
    assert "track_z" in caplog.text


def test_clear_long_after_a_failure_does_not_take_the_runs_own_file_for_a_leftover(airflow, status):
    """A clear gives a run that had failed a new start date."""
    status.write(track_a="running", track_b="running")
    airflow.poke(status.barrier())
    status.write(track_a="complete", track_b="complete")
    airflow.clear_number = 1
    late = airflow.at(hours=15)
    assert airflow.poke(status.barrier(), start=late)["tapped_out"] == {}


@pytest.mark.parametrize("epoch", [None, (EPOCH - 24 * 3600) * 1000], ids=["none", "milliseconds"])
def test_end_of_an_earlier_night_does_not_count_without_a_sound_epoch_either(airflow, status, caplog, epoch):
    ended = {"phase": "complete", "completed_at": EPOCH - 17 * 3600}
    status.write(track_a=ended, track_b=ended, epoch=epoch)
    assert airflow.poke(status.barrier()) == DISPATCH + hours(3)
    assert "left over from an earlier run" in caplog.text


def test_programs_that_start_over_meanwhile_have_their_last_dispatch_consumed(airflow, status):
    status.write(track_a="running", track_b="running")
    airflow.poke(status.barrier())
    airflow.at(hours=4)
    status.write(track_a="complete", track_b="complete", epoch=EPOCH + 3 * 3600)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"
    start = airflow.at(hours=5)
    assert airflow.poke(status.barrier(), run=("night", "run-2"), start=start) == DISPATCH + hours(8)


def test_clear_after_the_end_does_not_consume_the_file_of_the_next_run(airflow, status):
    airflow.poke(status.barrier())
    airflow.at(hours=14)
    assert airflow.poke(status.barrier())["outcome"] == "force_proceed", "there was no file at all"
    airflow.clear_number = 1
    start = airflow.at(hours=25)
    status.write(track_a="complete", track_b="complete", epoch=EPOCH + 24 * 3600)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"
    assert airflow.poke(status.barrier(), run=("night", "run-2"), start=start)["tapped_out"] == {}


def test_two_barriers_of_one_group_with_two_files_are_refused(airflow, status, tmp_path):
    status.write(track_a="complete", track_b="complete")
    airflow.at(hours=3)
    assert airflow.poke(status.barrier())["outcome"] == "proceed"
    other = status.barrier(status_path=str(tmp_path / "other.json"))
    with pytest.raises(DispatchConflictError, match="group="):
        other.execute(airflow.context(task="other_barrier"))
    assert isinstance(airflow.poke(other), datetime | dict), "the same barrier may be given another path"


def test_file_with_endless_oddities_does_not_flood_the_log(airflow, status, caplog):
    status.write(**{f"track_{n}": "done" for n in range(3000)})
    airflow.at(hours=3)
    airflow.poke(status.barrier())
    assert len(caplog.records) < 150
    assert max(len(record.getMessage()) for record in caplog.records) < 5000

"""The barrier on a real Airflow, with a first poll at 15 s and polls each 10 s.

The example has a ceiling of 90 s; the run of crashes, clears and restarts has 180 s, since it has to get
through all of them before, also on a slow machine. What is asserted is the order of events; seconds only say
how long to wait for one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.barrier import CEILING_REASON, RUN_DIED_REASON, TrackPhase
from airflow_relay.hooks.objects import ObjectFolder
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger
from airflow_relay.ledger.track_groups import GroupPlace, TrackGroup
from airflow_relay.ledger.tracks import Poll, TrackRow

EXAMPLE_CEILING, CEILING = timedelta(seconds=90), timedelta(seconds=180)
ENDED = frozenset({"success", "failed"})


class Night:
    """One run of a DAG that dispatches tracks, and what ledger and Airflow say of it."""

    def __init__(self, airflow: AirflowInstance, ledger: Ledger, dag_id: str, **conf: object) -> None:
        self.airflow, self.api, self.ledger, self.dag_id = airflow, airflow.api, ledger, dag_id
        self.run_id = f"{dag_id}-{uuid.uuid4().hex[:8]}"
        self.signals = airflow.home / "signals"
        self.signals.mkdir(exist_ok=True)
        self.api.trigger_dag(dag_id, conf=conf, run_id=self.run_id)

    def order(self, track: str, what: str = "end") -> None:
        (self.signals / f"{self.run_id}.{track}").write_text(what)

    def group(self) -> TrackGroup | None:
        place = GroupPlace(dag_id=self.dag_id, run_id=self.run_id)
        try:
            with self.ledger.read() as tx:
                return track_groups.find(tx, place)
        except LedgerError:  # no task has made it yet
            return None

    def tracks(self) -> dict[str, TrackRow]:
        group = self.group()
        assert group is not None
        with self.ledger.read() as tx:
            return {row.name: row for row in tracks.of_group(tx, group.id)}

    def polls(self) -> list[Poll]:
        group = self.group()
        if group is None:
            return []
        with self.ledger.read() as tx:
            return tracks.polls_of(tx, group.id)

    def wait_for_polls(self, count: int, *, timeout: float = 120) -> list[Poll]:
        return self.airflow.wait(
            lambda: found if len(found := self.polls()) >= count else None,
            what=f"{count} polls of {self.run_id}",
            timeout=timeout,
        )

    def task(self, task_id: str) -> dict:
        return self.api.task_instance(self.dag_id, self.run_id, task_id)

    def wait_for_task(self, task_id: str, *states: str, timeout: float = 180) -> dict:
        return self.airflow.wait_for_task(
            self.dag_id, self.run_id, task_id, states=frozenset(states), timeout=timeout
        )

    def wait_for_end(self, *, timeout: float = 240) -> str:
        run = self.airflow.wait_for_run(self.dag_id, self.run_id, states=ENDED, timeout=timeout)
        return run["state"]

    def barrier(self) -> dict:
        """What the barrier pushed."""
        return self.api.xcom(self.dag_id, self.run_id, "barrier")

    def started(self, task_id: str) -> datetime:
        return datetime.fromisoformat(self.task(task_id)["start_date"])


@pytest.fixture(scope="module")
def ledger(airflow_instance: AirflowInstance) -> Iterator[Ledger]:
    home = airflow_instance.home
    made = Ledger(f"sqlite:///{home}/relay/ledger.db", ObjectFolder(f"file://{home}/relay/results"))
    airflow_instance.wait_for_dags(
        "night", "night_track_a", "night_track_b", "overnight", "overnight_track_metrics"
    )
    yield made
    engine_for(made.url).dispose()


def tapped_counts(polls: list[Poll]) -> dict[str, int]:
    names = [name for poll in polls for name in poll.tapped]
    return {name: names.count(name) for name in names}


def test_consolidation_starts_at_the_first_poll_after_the_last_track_and_reports_all(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    """The four points of the document's verification, on the example itself."""
    airflow_instance.api.pause("overnight_track_metrics")
    try:
        night = Night(airflow_instance, ledger, "overnight")
        # 1: the first poll says that not all is done, and ends without consolidation.
        first = night.wait_for_polls(1)[0]
        assert first.done is False
        assert first.phases["metrics"] == "pending"
        assert night.task("consolidate")["state"] is None
        # 2: the next poll is scheduled; between polls the barrier holds no worker.
        night.wait_for_task("barrier", "up_for_reschedule")
        assert "Next poll at" in night.api.task_log("overnight", night.run_id, "barrier")
        assert night.wait_for_polls(2)[1].done is False
    finally:
        airflow_instance.api.unpause("overnight_track_metrics")
    # 3: the first poll after the last end says done, and the consolidation follows in the same run.
    assert night.wait_for_end() == "success"
    polls, ends = night.polls(), {name: row.finished_at for name, row in night.tracks().items()}
    last_end = max(end for end in ends.values() if end is not None)
    assert [poll.done for poll in polls] == [False] * (len(polls) - 1) + [True]
    assert [poll.at >= last_end for poll in polls] == [poll.done for poll in polls]
    # 4: the wait is over one interval after the last track at most, far from the ceiling.
    assert polls[-2].at < last_end <= polls[-1].at < night.started("consolidate")
    assert polls[-1].at < first.at - timedelta(seconds=15) + EXAMPLE_CEILING
    assert night.barrier()["outcome"] == "proceed"
    html = Path(night.api.xcom("overnight", night.run_id, "consolidate")).read_text()
    for name in ("settings", "metrics", "docstrings", "deprecations", "follow_up"):
        assert f'data-track="{name}"' in html
    assert "data-tapped-out" not in html
    lines = (airflow_instance.home / "overnight" / "poll_log.jsonl").read_text().splitlines()
    assert len(lines) >= len(polls)


@pytest.mark.slow
def test_report_names_the_track_that_the_ceiling_tapped_out(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    airflow_instance.api.pause("overnight_track_metrics")
    try:
        night = Night(airflow_instance, ledger, "overnight")
        assert night.wait_for_end() == "success"
    finally:
        airflow_instance.api.unpause("overnight_track_metrics")
    assert night.barrier()["outcome"] == "force_proceed"
    assert night.barrier()["tapped_out"] == {"metrics": CEILING_REASON}
    html = Path(night.api.xcom("overnight", night.run_id, "consolidate")).read_text()
    assert '<li data-tapped-out="metrics">' in html
    assert 'data-track="metrics"' not in html
    assert 'data-track="settings"' in html


def test_track_killed_without_reporting_is_noticed_at_the_next_poll(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    night = Night(airflow_instance, ledger, "night")
    night.wait_for_polls(1)
    night.order("a", "die")
    run_id = night.tracks()["a"].run_id
    assert run_id is not None
    airflow_instance.wait_for_run("night_track_a", run_id, states=frozenset({"failed"}))
    seen = len(night.polls())
    night.wait_for_polls(seen + 1)
    noticed = night.airflow.wait(
        lambda: row if (row := night.tracks()["a"]).is_final else None,
        what="the barrier to notice",
        timeout=120,
    )
    assert (noticed.phase, noticed.reason) == (TrackPhase.TAPPED_OUT, RUN_DIED_REASON)
    assert not night.tracks()["b"].is_final
    night.order("b")
    assert night.wait_for_end() == "success"
    assert tapped_counts(night.polls()) == {"a": 1}
    assert night.barrier()["tapped_out"] == {"a": RUN_DIED_REASON}
    assert night.barrier()["tracks"]["b"]["result"] == {"order": "end"}


@pytest.mark.parametrize("order", ["fail", "exit"])
def test_track_that_fails_reports_its_end_with_the_reason(
    airflow_instance: AirflowInstance, ledger: Ledger, order: str
) -> None:
    night = Night(airflow_instance, ledger, "night")
    night.airflow.wait(night.group, what="the dispatch", timeout=90)
    night.order("a", order)
    night.order("b")
    assert night.wait_for_end() == "success"
    assert f"{order}s as asked" in night.barrier()["tapped_out"]["a"]
    assert tapped_counts(night.polls()) == {}, "it reported itself, no poll had to"


def test_mark_failed_of_a_running_track_ends_it(airflow_instance: AirflowInstance, ledger: Ledger) -> None:
    night = Night(airflow_instance, ledger, "night")
    row = night.airflow.wait(
        lambda: r if night.group() and (r := night.tracks()["a"]).started_at else None,
        what="track a to begin",
        timeout=120,
    )
    airflow_instance.api.set_run_state("night_track_a", row.run_id, "failed")
    night.order("b")
    assert night.wait_for_end() == "success"
    assert list(night.barrier()["tapped_out"]) == ["a"]
    assert night.barrier()["outcome"] == "proceed"


@pytest.mark.slow
def test_ceiling_survives_crashes_retries_a_clear_and_a_scheduler_restart(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    night = Night(airflow_instance, ledger, "night", crash={"barrier": ["barrier.looked", "barrier.polled"]})
    try:
        # The first poll's process dies before anything is saved; its retry sleeps until the first poll, whose
        # process dies behind the commit. Then two retries are used up, and the barrier still polls.
        night.airflow.wait(
            lambda: (night.signals / f"{night.run_id}.barrier-crash-1").exists() or None,
            what="both crashes",
            timeout=120,
        )
        group = night.group()
        assert group is not None
        seen = len(night.polls())
        night.wait_for_polls(seen + 1)
        night.wait_for_task("barrier", "up_for_reschedule")
        assert night.task("barrier")["try_number"] == 3
        night.api.clear("night", night.run_id, ["barrier"])
        night.wait_for_polls(seen + 2)
        airflow_instance.restart("scheduler")
        assert night.wait_for_end(timeout=300) == "success"
    finally:
        night.order("a")
        night.order("b")
    after = night.group()
    assert after is not None
    assert (after.id, after.dispatched_at) == (group.id, group.dispatched_at), "nothing has moved the clock"
    polls = night.polls()
    assert all(poll.at < group.dispatched_at + CEILING for poll in polls[:-1])
    assert polls[-1].at >= group.dispatched_at + CEILING
    assert tapped_counts(polls) == {"a": 1, "b": 1}
    assert night.barrier()["outcome"] == "force_proceed"
    assert night.barrier()["tapped_out"] == {"a": CEILING_REASON, "b": CEILING_REASON}
    assert night.api.xcom("night", night.run_id, "consolidate") == ["a", "b"]


def test_dispatch_killed_at_each_step_starts_each_track_once(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    steps = ["tracks.recorded", "tracks.triggered", "tracks.triggered"]
    night = Night(airflow_instance, ledger, "night", crash={"dispatch": steps})
    first = night.airflow.wait(night.group, what="the dispatch", timeout=90)
    night.order("a")
    night.order("b")
    assert night.wait_for_end() == "success"
    assert night.task("dispatch")["try_number"] == 1 + len(steps)
    last = night.group()
    assert last is not None
    assert (last.id, last.dispatched_at) == (first.id, first.dispatched_at)
    expected = {f"night_track_{name}": row.run_id for name, row in night.tracks().items()}
    for dag_id, run_id in expected.items():
        runs = [r for r in airflow_instance.api.list_runs(dag_id) if night.run_id in r["note"]]
        assert [r["dag_run_id"] for r in runs] == [run_id]
    assert night.barrier()["tapped_out"] == {}


def test_clears_after_the_end_the_barrier_repeats_its_answer_and_the_dispatch_begins_anew(
    airflow_instance: AirflowInstance, ledger: Ledger
) -> None:
    night = Night(airflow_instance, ledger, "night")
    night.airflow.wait(night.group, what="the dispatch", timeout=90)
    night.order("a", "fail")
    night.order("b")
    assert night.wait_for_end() == "success"
    first, said, ends = night.group(), night.barrier(), night.tracks()
    assert first is not None
    night.api.clear("night", night.run_id, ["barrier"])
    night.airflow.wait(
        lambda: (
            night.task("consolidate")["try_number"] == 2 and night.task("consolidate")["state"] == "success"
        ),
        what="the consolidation to run again",
        timeout=120,
    )
    assert night.group() == first
    assert night.tracks() == ends, "nothing was tapped out again"
    assert night.barrier()["tracks"] == said["tracks"]
    night.order("a", "end")
    night.wait_for_end()
    night.api.clear("night", night.run_id, ["dispatch"])
    night.airflow.wait(
        lambda: g if (g := night.group()) and g.id != first.id else None, what="a new dispatch", timeout=120
    )
    assert night.wait_for_end() == "success"
    second = night.group()
    assert second is not None
    assert second.dispatched_at > first.dispatched_at
    assert {row.run_id for row in night.tracks().values()}.isdisjoint({row.run_id for row in ends.values()})
    assert night.barrier()["tapped_out"] == {}

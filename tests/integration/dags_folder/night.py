"""Tracks that do as they are told: for what may happen to a barrier in the night."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import dag, task

from airflow_relay import DispatchTracks, TrackBarrierSensor, TrackRun, track
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import track_groups

TRACKS = [TrackRun(name=name, dag_id=f"night_track_{name}") for name in ("a", "b")]
PATIENCE_S = 400.0


def signal_file(name: str) -> Path:
    return Path(os.environ["AIRFLOW_HOME"]) / "signals" / name


def parent_run(context: Any) -> str:
    """The run that dispatched this one."""
    with get_ledger().read() as tx:
        return track_groups.by_id(tx, context["dag_run"].conf["relay_track"]["group"]).run_id


def obey(order: str) -> dict[str, str]:
    if order == "fail":
        raise RuntimeError("fails as asked")
    if order == "exit":
        raise SystemExit("exits as asked")
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"order": order}


def make_track(name: str) -> Any:
    @dag(f"night_track_{name}", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc))
    def track_dag() -> None:
        @task
        def work(**context: Any) -> None:
            """Waits for ``signals/<dispatching run>.<track>`` and does what is in it."""
            with track() as this:
                orders = signal_file(f"{parent_run(context)}.{this.name}")
                begin = time.monotonic()
                while not orders.exists() and time.monotonic() - begin < PATIENCE_S:
                    time.sleep(0.1)
                this.result = obey(orders.read_text() if orders.exists() else "too late")

        work()

    return track_dag()


def crash_as_asked(context: Any) -> None:
    """``{"crash": {"barrier": ["barrier.looked", …]}}`` kills the task once at each point, in order."""
    run, task_id = context["dag_run"], context["ti"].task_id
    for number, point in enumerate(run.conf.get("crash", {}).get(task_id, ())):
        memory = signal_file(f"{run.run_id}.{task_id}-crash-{number}")
        if not memory.exists():
            os.environ["RELAY_TEST_MODE"] = "1"
            os.environ["RELAY_CRASH_AT"] = f"{point}@{memory}"
            return


@dag("night", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc))
def night() -> None:
    dispatch = DispatchTracks(
        task_id="dispatch", tracks=TRACKS, retry_delay=timedelta(seconds=1), pre_execute=crash_as_asked
    )
    barrier = TrackBarrierSensor(
        task_id="barrier",
        tracks=TRACKS,
        first_poll=15,
        poll_interval=10,
        ceiling=180,
        retries=2,
        retry_delay=timedelta(seconds=1),
        pre_execute=crash_as_asked,
    )

    @task
    def consolidate(found: dict[str, Any]) -> list[str]:
        return sorted(found["tapped_out"])

    dispatch >> barrier
    consolidate(barrier.output)


for _track in TRACKS:
    globals()[_track.dag_id] = make_track(_track.name)
night_dag = night()

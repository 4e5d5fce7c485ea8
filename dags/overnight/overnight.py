"""The overnight run: dispatch four tracks, go on as soon as the last has ended, report what they found.

Each track is a plain DAG of its own. Times come from the environment (``include/overnight/settings.py``).
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import dag, task
from include.overnight.analyses import ANALYSES
from include.overnight.settings import output_folder, schedule, times

from airflow_relay import DispatchTracks, TrackBarrierSensor, TrackRun, track

TIMES = times()
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BUDGETS = {"docstrings": timedelta(seconds=TIMES.ceiling * 6 / 7)}
TRACKS = [
    TrackRun(name=name, dag_id=f"overnight_track_{name}", max_wallclock=BUDGETS.get(name))
    for name in ANALYSES
]


def track_dag(name: str) -> Any:
    """The DAG of one track: its work in ``track()``, so that its end is always reported."""

    @dag(f"overnight_track_{name}", schedule=None, start_date=START, catchup=False, tags=["overnight"])
    def make() -> None:
        @task
        def analyse() -> None:
            with track() as this:
                this.result = ANALYSES[name]().to_json()

        analyse()

    return make()


@dag(
    "overnight",
    schedule=schedule(),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    tags=["overnight"],
    doc_md=__doc__,
)
def overnight() -> None:
    dispatch = DispatchTracks(task_id="dispatch", tracks=TRACKS)
    barrier = TrackBarrierSensor(
        task_id="barrier",
        tracks=TRACKS,
        first_poll=TIMES.first_poll,
        poll_interval=TIMES.poll_interval,
        ceiling=TIMES.ceiling,
        poll_log_path=f"file://{output_folder()}/poll_log.jsonl",
    )

    @task(trigger_rule="all_success")
    def follow_up(found: dict[str, Any]) -> dict[str, Any]:
        from include.overnight.analyses import follow_up as look_further

        with track("follow_up", group="follow_up") as this:
            complete = [t["result"] for t in found["tracks"].values() if t["phase"] == "complete"]
            this.result = look_further(complete)
        return this.result

    @task(trigger_rule="all_done_min_one_success")
    def consolidate(found: dict[str, Any], further: dict[str, Any] | None, dag_run: Any = None) -> str:
        from include.overnight.report import render_report, write_report

        from airflow_relay.clock import utcnow

        html = render_report(found, further, now=utcnow())
        return str(write_report(html, output_folder(), dag_run.run_id))

    found = barrier.output
    dispatch >> barrier
    consolidate(found, follow_up(found))


for _name in ANALYSES:
    globals()[f"overnight_track_{_name}"] = track_dag(_name)
overnight_dag = overnight()

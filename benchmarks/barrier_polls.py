"""What a poll costs the scheduler: TrackBarrierSensor beside Airflow's own DateTimeSensor, both rescheduling.

    RELAY_TEST_POSTGRES_URL=postgresql+psycopg2://… python benchmarks/barrier_polls.py [--sensors 100]

One DAG run with N mapped barriers, and one with N mapped DateTimeSensors, take turns on one Airflow, with the
same interval. Of each turn the first round is left out; then the CPU time of the scheduler's own process (its
workers aside) is divided by the number of polls, which Airflow itself counts (one row of ``task_reschedule``
for each). A DateTimeSensor's poll does nothing at all, so it is the hardest one to compare with. The turns
are repeated, since the first one of a scheduler is dearer than the rest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
from sqlalchemy import create_engine, text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from airflow_instance import AirflowInstance

DAG_FILE = """
from datetime import datetime, timedelta, timezone

from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.sdk import dag

from airflow_relay import TrackBarrierSensor

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NUMBER, INTERVAL = {sensors}, {interval}


@dag("barrier", schedule=None, start_date=START)
def barrier():
    TrackBarrierSensor.partial(
        task_id="wait", tracks=["never"], first_poll=INTERVAL, poll_interval=INTERVAL, ceiling=86_400
    ).expand(group=[f"group-{{number}}" for number in range(NUMBER)])


@dag("stock", schedule=None, start_date=START)
def stock():
    DateTimeSensor.partial(task_id="wait", mode="reschedule", poke_interval=INTERVAL, timeout=86_400).expand(
        target_time=[f"2999-01-01T00:00:{{number % 60:02}}+00:00" for number in range(NUMBER)]
    )


barrier()
stock()
"""


class Polls:
    """Counts an Airflow's polls, and the CPU seconds of its scheduler."""

    def __init__(self, airflow: AirflowInstance) -> None:
        self.engine = create_engine(airflow.metadata_url)
        self.scheduler = psutil.Process(airflow.component("scheduler").pid)

    def count(self, run_id: str) -> int:
        query = text(
            "SELECT count(*) FROM task_reschedule r JOIN task_instance t ON t.id = r.ti_id "
            "WHERE t.run_id = :run"
        )
        with self.engine.connect() as conn:
            return int(conn.execute(query, {"run": run_id}).scalar_one())

    def cpu(self) -> float:
        times = self.scheduler.cpu_times()
        return times.user + times.system


def turn(airflow: AirflowInstance, polls: Polls, dag_id: str, options: argparse.Namespace) -> float:
    """CPU seconds per poll of one run, which is ended afterwards."""
    run_id = airflow.api.trigger_dag(dag_id)
    airflow.wait(
        lambda: polls.count(run_id) >= options.sensors, what=f"the first round of {dag_id}", timeout=900
    )
    cpu, count = polls.cpu(), polls.count(run_id)
    time.sleep(options.rounds * options.interval)
    cpu, count = polls.cpu() - cpu, polls.count(run_id) - count
    print(f"{dag_id:8} {count:5} polls  {cpu:7.2f} s CPU  {1000 * cpu / count:7.2f} ms per poll", flush=True)
    airflow.wait(
        lambda: ended(airflow, dag_id, run_id), what=f"{run_id} to be ended", timeout=300, interval=5
    )
    return cpu / count


def ended(airflow: AirflowInstance, dag_id: str, run_id: str) -> bool:
    """End the run; the API server may lose against the scheduler over a hundred rows, and is asked again."""
    try:
        airflow.api.set_run_state(dag_id, run_id, "failed")
    except httpx.HTTPStatusError as error:
        if error.response.status_code < 500:
            raise
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sensors", type=int, default=100)
    parser.add_argument("--interval", type=int, default=60, help="seconds")
    parser.add_argument("--rounds", type=int, default=3, help="intervals measured in each turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of each; the first is left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barrier-polls-") as folder:
        dags = Path(folder, "dags")
        dags.mkdir()
        (dags / "polls.py").write_text(DAG_FILE.format(sensors=options.sensors, interval=options.interval))
        server = os.environ.get("RELAY_TEST_POSTGRES_URL")
        with AirflowInstance(Path(folder, "home"), [dags], postgres_server=server) as airflow:
            airflow.wait_for_dags("barrier", "stock")
            polls = Polls(airflow)
            costs: dict[str, list[float]] = {"barrier": [], "stock": []}
            for _ in range(options.turns):
                for dag_id, found in costs.items():
                    found.append(turn(airflow, polls, dag_id, options))
    ours, theirs = (statistics.median(found[1:] or found) for found in costs.values())
    print(f"barrier / stock: {ours / theirs:.2f} (median of {max(1, options.turns - 1)} turns)")


if __name__ == "__main__":
    main()

"""The stage gap on a busy system against the same one idle, in one run of one Airflow (PostgreSQL).

Two loads: ``waiting`` has 2,000 items ready for a stage of limit 4 whose work is deferred; ``deferred`` has
60 items deferred and 2,000 open dead letters. The probe is the four-stage chain of ``stage_gap.py``, one item
at a time, and the start of a sweep that a person triggers. Queued runs are counted every second meanwhile.

    python benchmarks/busy_system.py [--load waiting|deferred] [--items 2000] [--probes 12]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import stage_gap

from airflow_api import AirflowApi
from airflow_instance import ROOT, AirflowInstance
from airflow_relay.clock import utcnow
from airflow_relay.core.completion import Completion
from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.hooks.objects import results_folder
from airflow_relay.ledger.engine import dispose_engines
from airflow_relay.ledger.schema import items
from airflow_relay.ledger.store import Ledger
from databases import create_database, drop_database

DAGS = Path(__file__).parent / "busy_system_dags"
TARGETS = {"waiting": 1.3, "deferred": 1.5}
SWEEP = "relay__recovery"


@dataclass
class Probes:
    """Seconds that were measured."""

    gaps: list[float] = field(default_factory=list)
    sweep_starts: list[float] = field(default_factory=list)


@dataclass
class Queue:
    """How many runs Airflow has queued at once, at most."""

    most: int = 0
    looks: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load", choices=TARGETS, help="only this one; by default both, one after the other")
    parser.add_argument("--items", type=int, default=2000, help="waiting items, or dead letters")
    parser.add_argument("--probes", type=int, default=12, help="items sent through the chain, in each state")
    arguments = parser.parse_args()
    server = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not server:
        print("RELAY_TEST_POSTGRES_URL is not set: the benchmark needs PostgreSQL.", file=sys.stderr)
        return 2
    for load in [arguments.load] if arguments.load else TARGETS:
        measure(server, load, arguments)
    return 0


def measure(server: str, load: str, arguments: argparse.Namespace) -> None:
    url = create_database(server, prefix="relay_busy")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        airflow = AirflowInstance(
            Path(folder) / "home",
            [stage_gap.DAGS, DAGS, ROOT / "dags" / "operations"],
            postgres_server=server,
            parallelism=8,
            connections={"relay_ledger": url.replace("postgresql+psycopg2", "postgresql")},
        )
        try:
            with airflow:
                airflow.cli("relay", "init")
                airflow.wait_for_dags("relayed__four", "crowd__wait", SWEEP, timeout=180)
                probe(airflow, "warm", 1)
                idle = probe(airflow, "idle", arguments.probes)
                put_under_load(airflow, url, load, arguments.items)
                with counted_queue(airflow) as queue:
                    busy = probe(airflow, "busy", arguments.probes)
                report(load, idle, busy, queue, still_there(url))
        finally:
            dispose_engines()
            drop_database(server, url)


def probe(airflow: AirflowInstance, name: str, count: int) -> Probes:
    """Send items through the chain one at a time, and start a sweep after each."""
    found = Probes()
    for number in range(count):
        found.gaps += stage_gap.run(airflow, "relayed", f"{name}{number}", 1)[0]
        found.sweep_starts.append(sweep_start(airflow))
    return found


def sweep_start(airflow: AirflowInstance) -> float:
    """From the request for a sweep to its first task, by Airflow's records."""
    run_id = airflow.api.trigger_dag(SWEEP, conf={"dry_run": True})
    run = airflow.wait_for_run(SWEEP, run_id)
    first = min(row["start_date"] for row in airflow.api.task_instances(SWEEP, run_id) if row["start_date"])
    return (datetime.fromisoformat(first) - datetime.fromisoformat(run["queued_at"])).total_seconds()


def put_under_load(airflow: AirflowInstance, url: str, load: str, count: int) -> None:
    # Relay's own ceiling of 60 runs would have no room for the probe beside 60 deferred ones.
    limits = {"airflow.runs": 100, "crowd.wait": 4 if load == "waiting" else 60}
    airflow.api.set_variable("relay_limits", json.dumps(limits))
    if load == "waiting":
        crowd = {"name": "many", "count": count, "seconds": 20}
    else:
        bury(url, count)
        crowd = {"name": "long", "count": 60, "seconds": 3600}
    airflow.api.trigger_dag("crowd__wait", conf=crowd)
    deferred = limits["crowd.wait"]
    airflow.wait(
        lambda: states_of(airflow.api, "crowd__wait", "wait").count("deferred") >= deferred,
        what=f"{deferred} runs to be deferred",
        timeout=300,
        interval=1.0,
    )


def bury(url: str, count: int) -> None:
    """Let ``count`` items of a pipeline without DAGs end in the dead letters, as a hand-off does it."""
    ledger, pipeline = (
        Ledger(url, results_folder()),
        Pipeline("buried", [Stage("dig", to=END, schedule="@daily")]),
    )
    refused = Completion(RunResult.FAILED, None, ErrorClass.CONTENT_POLICY.value, "refused by the model")
    _, waiting = ledger.intake(pipeline, [f"b{i}" for i in range(count)], Conditions(), utcnow())
    while waiting:
        done = ledger.hand_off(
            waiting.pop(),
            pipeline=pipeline,
            completion=refused,
            stored=None,
            clear_number=0,
            conditions=Conditions(),
            now=utcnow(),
        )
        waiting += done.grants


def states_of(api: AirflowApi, dag_id: str, task_id: str) -> list[str]:
    rows = api.task_instances(dag_id, "~")
    return [row["state"] for row in rows if row["task_id"] == task_id]


@contextmanager
def counted_queue(airflow: AirflowInstance) -> Iterator[Queue]:
    """Look once a second how many runs are queued, on a connection of its own."""
    api, found, over = AirflowApi(airflow.address), Queue(), threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            found.most = max(found.most, len(api.list_runs("~", state="queued")))
            found.looks += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        api.close()


def still_there(url: str) -> dict[str, int]:
    """The load at the end of the measurement: items of the crowd and the buried, by state."""
    crowds = select(items.c.pipeline, items.c.state, func.count()).group_by(items.c.pipeline, items.c.state)
    with Ledger(url, results_folder()).read() as tx:
        rows = tx.conn.execute(crowds.where(items.c.pipeline.in_(["crowd", "buried"]))).all()
    return {f"{pipeline} {state.value}": count for pipeline, state, count in rows}


def report(load: str, idle: Probes, busy: Probes, queue: Queue, there: dict[str, int]) -> None:
    print(f"\n{load}: {len(idle.gaps)} gaps and {len(idle.sweep_starts)} sweeps in each state, medians")
    print(f"  at the end: {there}")
    print(f"  queued runs at once, at most: {queue.most} ({queue.looks} looks)")
    target = TARGETS[load]
    for what, quiet, loaded in (
        ("stage gap", idle.gaps, busy.gaps),
        ("start of a sweep", idle.sweep_starts, busy.sweep_starts),
    ):
        first, second = statistics.median(quiet), statistics.median(loaded)
        verdict = "met" if second <= target * first else "missed"
        print(
            f"  {what:<17} idle {first:.2f} s, busy {second:.2f} s, "
            f"ratio {second / first:.2f} (target {target}: {verdict})"
        )


if __name__ == "__main__":
    sys.exit(main())

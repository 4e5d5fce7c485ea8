"""The gap between two stages: Relay beside a plain TriggerDagRunOperator chain in the same Airflow.

A gap is the time from the end of a stage's last work task to the start of the next stage's first work task,
as Airflow's own records say. Both chains have four empty stages; rounds are interleaved, figures are medians
of the rounds. Needs PostgreSQL (``RELAY_TEST_POSTGRES_URL``).

    make bench ARGS="--rounds 3 --items 12 --stock"
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from airflow_instance import AirflowInstance
from databases import create_database, drop_database

DAGS = Path(__file__).parent / "stage_gap_dags"
STAGES = ("one", "two", "three", "four")
TARGETS = {"one at a time": 1.10, "in flight": 1.30, "total wall": 1.25}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--items", type=int, default=12, help="items in flight at once")
    parser.add_argument("--singles", type=int, default=4, help="items one at a time, in each round")
    parser.add_argument("--parallelism", type=int, default=4)
    parser.add_argument("--stock", action="store_true", help="also with Airflow's stock configuration")
    arguments = parser.parse_args()
    server = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not server:
        print("RELAY_TEST_POSTGRES_URL is not set: the benchmark needs PostgreSQL.", file=sys.stderr)
        return 2
    for recommended in (True, False) if arguments.stock else (True,):
        measure(server, recommended=recommended, arguments=arguments)
    return 0


def measure(server: str, *, recommended: bool, arguments: argparse.Namespace) -> None:
    ledger = create_database(server, prefix="relay_gap")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        airflow = AirflowInstance(
            Path(folder) / "home",
            [DAGS],
            postgres_server=server,
            parallelism=arguments.parallelism,
            recommended=recommended,
            connections={"relay_ledger": ledger.replace("postgresql+psycopg2", "postgresql")},
        )
        try:
            with airflow:
                airflow.cli("relay", "init")
                airflow.wait_for_dags(
                    *(f"{c}__{s}" for c in ("plain", "relayed") for s in STAGES), timeout=180
                )
                report("recommended" if recommended else "stock", rounds(airflow, arguments))
        finally:
            drop_database(server, ledger)


def rounds(airflow: AirflowInstance, arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Measure → chain → one figure a round."""
    found: dict[str, dict[str, list[float]]] = {}
    for chain in ("plain", "relayed"):  # once each without counting: imports, caches, connections
        run(airflow, chain, f"warm-{chain}", 1)
    for number in range(arguments.rounds):
        order = ("plain", "relayed") if number % 2 == 0 else ("relayed", "plain")
        for chain in order:
            gaps: list[float] = []
            for single in range(arguments.singles):
                gaps += run(airflow, chain, f"s{number}-{single}", 1)[0]
            found.setdefault("one at a time", {}).setdefault(chain, []).append(statistics.median(gaps))
        for chain in order:
            gaps, wall = run(airflow, chain, f"m{number}", arguments.items)
            found.setdefault("in flight", {}).setdefault(chain, []).append(statistics.median(gaps))
            found.setdefault("total wall", {}).setdefault(chain, []).append(wall)
    return found


def run(airflow: AirflowInstance, chain: str, name: str, count: int) -> tuple[list[float], float]:
    """Send ``count`` items through a chain; returns all gaps and the wall time, in seconds."""
    keys = [f"{name}-{i}" for i in range(count)]
    begun = time.monotonic()
    if chain == "relayed":
        airflow.api.trigger_dag("relayed__one", conf={"keys": keys})
    for key in keys if chain == "plain" else ():
        airflow.api.trigger_dag("plain__one", run_id=f"plain-{key}")

    def all_ended() -> bool:
        runs = airflow.api.list_runs(f"{chain}__four")
        mine = [r for r in runs if any(is_last(r, k) for k in keys)]
        return len(mine) == count and all(r["state"] == "success" for r in mine)

    airflow.wait(all_ended, what=f"{count} items through {chain}", timeout=600, interval=0.5)
    wall = time.monotonic() - begun
    times = {stage: work_times(airflow, chain, stage, keys) for stage in STAGES}
    gaps = [
        (times[after][key][0] - times[before][key][1]).total_seconds()
        for before, after in itertools.pairwise(STAGES)
        for key in keys
    ]
    return gaps, wall


def is_last(run: dict[str, Any], key: str) -> bool:
    run_id = run["dag_run_id"]
    return run_id == f"plain-{key}" or run_id.startswith(f"relay:relayed:four:{key}:")


def work_times(
    airflow: AirflowInstance, chain: str, stage: str, keys: list[str]
) -> dict[str, tuple[datetime, datetime]]:
    """Key → start and end of the stage's work task."""
    found = {}
    for row in airflow.api.task_instances(f"{chain}__{stage}", "~"):
        if row["task_id"] != "work" or not row["end_date"]:
            continue
        for key in keys:
            run_id = row["dag_run_id"]
            if run_id == f"plain-{key}" or run_id.startswith(f"relay:relayed:{stage}:{key}:"):
                found[key] = tuple(datetime.fromisoformat(row[f]) for f in ("start_date", "end_date"))
    return found


def report(configuration: str, found: dict[str, dict[str, list[float]]]) -> None:
    print(f"\n{configuration} configuration: medians of {len(found['total wall']['plain'])} rounds, seconds")
    print(f"{'':>16} {'plain':>8} {'Relay':>8} {'ratio':>7} {'target':>7}")
    for what, by_chain in found.items():
        plain, relay = (statistics.median(by_chain[c]) for c in ("plain", "relayed"))
        print(f"{what:>16} {plain:8.2f} {relay:8.2f} {relay / plain:7.2f} {TARGETS[what]:7.2f}")


if __name__ == "__main__":
    sys.exit(main())

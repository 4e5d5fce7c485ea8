"""Many agent jobs end to end through a real Airflow: each is paid once, and how late its end is noticed.

    python benchmarks/jobs_end_to_end.py --items 200 --latency 20:120

One intake finds the items of ``tests/integration/dags_folder/agent_jobs.py``; each has one job on the
embedded agent server, is deferred while it runs, and is handed off. A lag is the time from the job's end on
the server to its end in the ledger, or to that of its item. Needs PostgreSQL (``RELAY_TEST_POSTGRES_URL``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from triggers_at_scale import ends  # noqa: E402

from airflow_instance import AirflowInstance  # noqa: E402
from airflow_relay.ledger.engine import engine_for  # noqa: E402
from airflow_relay.ledger.jobs import JobPhase  # noqa: E402
from databases import create_database, drop_database  # noqa: E402
from integration.relay_on_airflow import RelayOnAirflow  # noqa: E402
from support.agent_items import CONNECTION, AgentItems  # noqa: E402 - needs the path above
from support.agent_server import AgentServerProcess  # noqa: E402

DAGS = ROOT / "tests" / "integration" / "dags_folder"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--latency", default="20:120", help="seconds that a job takes")
    parser.add_argument("--parallelism", type=int, default=4, help="of Airflow's executor")
    arguments = parser.parse_args()
    postgres = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not postgres:
        print("RELAY_TEST_POSTGRES_URL is not set: the benchmark needs PostgreSQL.", file=sys.stderr)
        return 2
    ledger = create_database(postgres, prefix="relay_jobs")
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            AgentServerProcess(latency=arguments.latency) as server,
            AirflowInstance(
                Path(folder) / "home",
                [DAGS],
                postgres_server=postgres,
                parallelism=arguments.parallelism,
                connections={
                    CONNECTION: server.url,
                    "relay_ledger": ledger.replace("postgresql+psycopg2", "postgresql"),
                },
            ) as airflow,
        ):
            airflow.cli("relay", "init")
            airflow.wait_for_dags("agents__ask", timeout=180)
            measure(airflow, server, ledger, arguments.items)
    finally:
        engine_for(ledger).dispose()
        drop_database(postgres, ledger)
    return 0


def measure(airflow: AirflowInstance, server: AgentServerProcess, ledger: str, number: int) -> None:
    """Run the items and print what was found; a job that is lost or paid twice is an AssertionError."""
    relay = RelayOnAirflow(airflow, "agents", "ask", ledger_url=ledger)
    agents = AgentItems(relay, server)
    keys = [f"item-{n:04}" for n in range(number)]
    started = time.monotonic()
    # Nothing goes wrong at the server: a fault that adds no time takes the place of the DAG's default one.
    agents.start_all({key: {"fault": "slow:seconds=0"} for key in keys})
    airflow.wait(lambda: not agents.unfinished(keys), what="all items to be done", timeout=3600, interval=1)
    wall = time.monotonic() - started
    agents.assert_books_agree()
    known = [(key, job) for key in keys for job in agents.jobs_of(key)]
    assert len(known) == number, "an item has more than one job"
    assert {job.phase for _, job in known} == {JobPhase.SUCCEEDED}
    ended = ends(server)
    noticed = [job.finished_at.timestamp() - ended[job.ref["id"]] for _, job in known]
    closed = [relay.item(key).last_activity_at.timestamp() - ended[job.ref["id"]] for key, job in known]
    stats = server.stats()
    print(
        json.dumps(
            {
                "items": number,
                "jobs_on_server": stats["jobs_created"],
                "posts": stats["posts"],
                "paid_twice": stats["jobs_created"] - number,
                "most_at_once": stats["max_active"],
                "wall_s": round(wall, 1),
                "lag_to_ledger_s": spread(noticed),
                "lag_to_end_of_item_s": spread(closed),
            }
        )
    )
    relay.close()


def spread(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {
        "p50": round(statistics.median(ordered), 1),
        "p99": round(p99, 1),
        "max": round(ordered[-1], 1),
    }


if __name__ == "__main__":
    sys.exit(main())

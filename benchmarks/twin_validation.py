"""The digital twin against a real Airflow: the same items, the same stage times, the same limits.

    python benchmarks/twin_validation.py [--items 30] [--calibration 12] [--postgres URL]

A real Airflow first runs a few items, whose latencies (grant to first task, end of the work to the hand-
off's transaction) become the twin's. Then it runs the items of the comparison, whose stages sleep for
the times that the twin draws for them, and the twin runs the same. Compared are the end-to-end times,
from registration to the item's end, as both ledgers have them. Exit code 1 when the medians differ by
more than 15 %.

A twin is as good as its latencies: on a machine that is busier in one of the two runs they differ. So the
latencies of the compared run are told beside those of the earlier one, and what the twin says with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from airflow_instance import AirflowInstance  # noqa: E402 - needs the path above
from airflow_relay.core.item import Item  # noqa: E402
from airflow_relay.core.states import FINISHED, TERMINAL  # noqa: E402
from airflow_relay.ledger import items, runs  # noqa: E402
from airflow_relay.ledger.errors import LedgerError  # noqa: E402
from airflow_relay.ledger.store import Ledger  # noqa: E402
from airflow_relay.simulation.chance import Chance  # noqa: E402
from airflow_relay.simulation.experiment import simulate_once  # noqa: E402
from airflow_relay.simulation.sample import Sample  # noqa: E402
from airflow_relay.simulation.scenario import Scenario  # noqa: E402
from airflow_relay.simulation.work import bodies  # noqa: E402

STAGES = ("first", "second", "third")
LIMIT = 3
SEED = 11
ALLOWED = 0.15

DAGS = f"""
import json, os, time
from airflow.sdk import task
from airflow_relay import END, Pipeline, Stage, current_item, stage_dag

twin = Pipeline("twin", [
    Stage("first", to="second", schedule="0 0 1 1 *", limit={LIMIT}),
    Stage("second", to="third", limit={LIMIT}),
    Stage("third", to=END, limit={LIMIT}),
])

def find():
    with open(os.environ["TWIN_BATCH"]) as batch:
        return json.load(batch)

def body(stage):
    def build():
        @task
        def work():
            time.sleep(current_item().payload[stage])
        return work()
    return build

first = stage_dag(twin, "first", intake=find)(body("first"))
second = stage_dag(twin, "second")(body("second"))
third = stage_dag(twin, "third")(body("third"))
"""


@dataclass
class Latencies:
    """Seconds, as they were measured."""

    start: list[float]
    hand_off: list[float]


def scenario(number: int, latencies: Latencies | None = None) -> Scenario:
    """The twin's side: stages of 20 to 40 s."""
    targets = (*STAGES[1:], "@done")
    stages = [
        {"name": name, "to": to, "limit": LIMIT, "minutes": {"uniform": [20 / 60, 40 / 60]}}
        for name, to in zip(STAGES, targets, strict=True)
    ]
    stages[0]["schedule"] = "0 0 * * *"
    measured = latencies or Latencies([0.0], [0.0])
    return Scenario.model_validate(
        {
            "name": "twin",
            "title": "the twin of a real run",
            "pipelines": {"twin": {"arrivals": {"per_intake": number}, "stages": stages}},
            "latency": {
                "start_seconds": {"sample": measured.start, "source": "measured in an earlier run"},
                "hand_off_seconds": {"sample": measured.hand_off, "source": "measured in an earlier run"},
            },
            "models": [{"name": "relay", "kind": "relay", "title": "Relay"}],
        }
    )


def payloads(number: int, seed: int) -> list[dict[str, float]]:
    """Item by item, the seconds that the twin draws for each stage."""
    twin = scenario(number)
    work = bodies(twin, twin.models[0], Chance(seed))
    return [
        {stage: work[("twin", stage)].attempt(item, 1, 0.0).seconds for stage in STAGES}
        for item in range(1, number + 1)
    ]


class Real:
    """The real side."""

    def __init__(self, airflow: AirflowInstance, batch: Path) -> None:
        self.airflow, self.batch = airflow, batch
        self.ledger = Ledger(f"sqlite:///{airflow.home}/relay/ledger.db", None)

    def run(self, name: str, work: Sequence[dict[str, float]], *, timeout: float) -> list[Item]:
        """One intake with these items; returns them when all have ended."""
        found = [{"key": f"{name}-{n:03d}", "payload": seconds} for n, seconds in enumerate(work, 1)]
        self.batch.write_text(json.dumps(found))
        self.airflow.api.trigger_dag("twin__first")
        return self.airflow.wait(
            lambda: self._ended(name, len(work)), what=f"{len(work)} items", timeout=timeout, interval=2
        )

    def _ended(self, name: str, number: int) -> list[Item] | None:
        try:
            with self.ledger.read() as tx:
                known = [i for i in items.listing(tx) if i.key.startswith(f"{name}-")]
        except LedgerError:  # not made yet
            return None
        return known if len(known) == number and all(i.state in TERMINAL for i in known) else None

    def latencies(self, ended: Sequence[Item], work: Sequence[dict[str, float]]) -> Latencies:
        found = Latencies([], [])
        with self.ledger.read() as tx:
            for item in ended:
                seconds = work[int(item.key.rpartition("-")[2]) - 1]
                for run in runs.of_item(tx, item.id):
                    assert run.started_at is not None
                    assert run.closed_at is not None
                    found.start.append((run.started_at - run.granted_at).total_seconds())
                    rest = (run.closed_at - run.started_at).total_seconds() - seconds[run.stage]
                    found.hand_off.append(max(0.0, rest))
        return found


def end_to_end(ended: Sequence[Item]) -> Sample:
    sample = Sample()
    for item in ended:
        assert item.state in FINISHED
        assert item.finished_at is not None
        sample.add((item.finished_at - item.registered_at).total_seconds())
    return sample


def described(values: Sequence[float]) -> str:
    sample = Sample()
    for value in values:
        sample.add(value)
    return f"median {sample.median:.1f} s, p95 {sample.p95:.1f} s"


def simulated(latencies: Latencies, number: int) -> Sample:
    twin = scenario(number, latencies)
    recorder = simulate_once(twin, twin.models[0], days=1, seed=SEED)
    sample = Sample()
    for hours in recorder.end_to_end.values:
        sample.add(hours * 3600)
    return sample


def compare(real: Sample, earlier: Latencies, own: Latencies, number: int) -> dict[str, Any]:
    twin = simulated(earlier, number)
    return {
        "items": number,
        "real": figures(real),
        "twin": figures(twin),
        "median_off_by": twin.median / real.median - 1,
        "start_latency": {"earlier": described(earlier.start), "compared run": described(own.start)},
        "hand_off_latency": {"earlier": described(earlier.hand_off), "compared run": described(own.hand_off)},
        "median_off_by_with_own_latencies": simulated(own, number).median / real.median - 1,
    }


def figures(sample: Sample) -> dict[str, float]:
    found = {"median_s": sample.median, "p95_s": sample.p95, "low_s": sample.low, "high_s": sample.high}
    return {name: round(value, 1) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--calibration", type=int, default=12, help="items of the earlier run")
    parser.add_argument("--postgres", default=os.environ.get("RELAY_TEST_POSTGRES_URL"), metavar="URL")
    parser.add_argument("--timeout", type=float, default=2400)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="twin-") as folder:
        dags, batch = Path(folder, "dags"), Path(folder, "batch.json")
        dags.mkdir()
        (dags / "twin.py").write_text(DAGS)
        batch.write_text("[]")
        with AirflowInstance(
            Path(folder, "airflow"),
            [dags, ROOT / "dags" / "operations"],
            postgres_server=options.postgres,
            parallelism=4 * LIMIT,
            extra_env={"TWIN_BATCH": str(batch)},
        ) as airflow:
            airflow.wait_for_dags(*(f"twin__{stage}" for stage in STAGES), timeout=300)
            real = Real(airflow, batch)
            earlier = payloads(options.calibration, SEED + 1)
            ended = real.run("earlier", earlier, timeout=options.timeout)
            latencies = real.latencies(ended, earlier)
            print(f"earlier run: {len(ended)} items, start {described(latencies.start)}", flush=True)
            work = payloads(options.items, SEED)
            ended = real.run("item", work, timeout=options.timeout)
            own = real.latencies(ended, work)
            report = compare(end_to_end(ended), latencies, own, options.items)
    print(json.dumps(report, indent=2))
    off = report["median_off_by"]
    print(f"The twin's median is {off:+.1%} off the real one ({ALLOWED:.0%} are allowed).")
    return 0 if abs(off) <= ALLOWED else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""An adaptive capacity key against an agent server that answers 429 above a limit that nobody was told.

    python benchmarks/adaptive_key.py [--capacity 6] [--seconds 40]

The embedded agent server takes ``--capacity`` jobs at once and answers 429 to more. One pipeline asks it,
with its key at fixed limits and then at an adaptive one. Grants, errors and ends go through a ledger, as they
do in Airflow: a job that is refused is recorded as the retry policy does it, waits a second as the server
asks, and tries again while its run holds its slot. The rule's times are shortened (window and interval of
seconds, not minutes), so that a measurement of a minute sees several rounds of raising and halving.

What must hold: the adaptive key reaches 80 % of the throughput of the best fixed limit, with a fifth of the
429s of the worst.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from airflow_relay.core.completion import Completion
from airflow_relay.core.errors import classify
from airflow_relay.core.item import Run
from airflow_relay.core.limits import parse_limits
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import closing, governing
from airflow_relay.ledger.store import Ledger
from support.agent_server import AgentServerProcess
from support.pipelines import MemoryObjects

KEY = "service"
JOB_SECONDS = "0.8:1.2"
INPUT = json.dumps({"draft": "# Pools\n\nA pool has a fixed number of slots [1]."})
PIPELINE = Pipeline("bench", [Stage("ask", schedule="0 7 * * *", keys=(KEY,))])


@dataclass
class Measured:
    """One measurement."""

    name: str
    seconds: float
    succeeded: int = 0
    refused: int = 0
    limits: list[str] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        return self.succeeded / self.seconds


class Bench:
    """Asks the server with what the ledger grants, for a while."""

    def __init__(self, server: AgentServerProcess, ledger: Ledger, limit: Any, measured: Measured) -> None:
        self.server, self.ledger, self.measured = server, ledger, measured
        limits, problems = parse_limits({KEY: limit})
        assert not problems, problems
        self.conditions = Conditions(limits=limits.effective({}), adaptive=limits.adaptive)
        self.running: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()

    async def run(self) -> Measured:
        items = [f"item-{n}" for n in range(int(self.measured.seconds * 40))]
        async with httpx.AsyncClient(base_url=self.server.url, trust_env=False, timeout=60) as client:
            self.client = client
            self.begin(self.ledger.intake(PIPELINE, items, self.conditions, now())[1])
            await asyncio.sleep(self.measured.seconds)
            self.over.set()
            for task in self.running:
                task.cancel()
            await asyncio.gather(*self.running, return_exceptions=True)
        return self.measured

    def begin(self, grants: list[Run]) -> None:
        for run in grants:
            task = asyncio.create_task(self.serve(run))
            self.running.add(task)
            task.add_done_callback(self.running.discard)

    async def serve(self, run: Run) -> None:
        while (reply := await self.ask(run)).is_error:
            verdict = classify(
                status=reply.status_code, headers=dict(reply.headers), body=reply.text, exception=None
            )
            self.measured.refused += 1
            with self.ledger.dispatcher() as tx:
                closing.record_error(
                    tx,
                    run,
                    error_class=verdict.error_class.value,
                    reason=verdict.reason,
                    task_id="ask",
                    will_retry=True,
                    now=now(),
                    adaptive=self.conditions.adaptive,
                )
            self.note_limit()
            await asyncio.sleep(verdict.retry_after or 1)
        self.measured.succeeded += 1
        done = self.ledger.hand_off(
            run,
            pipeline=PIPELINE,
            completion=Completion(RunResult.SUCCESS),
            stored=None,
            clear_number=0,
            conditions=self.conditions,
            now=now(),
        )
        self.note_limit()
        self.begin(list(done.grants))

    async def ask(self, run: Run) -> httpx.Response:
        body = {"model": "extractive/publish", "input": INPUT, "metadata": {"item": str(run.item_id)}}
        return await self.client.post("/v1/responses", json=body)

    def note_limit(self) -> None:
        with self.ledger.read() as tx:
            for figures in governing.adaptive_figures(tx, self.conditions.adaptive):
                if [str(figures.limit)] != self.measured.limits[-1:]:
                    self.measured.limits.append(str(figures.limit))


def now() -> datetime:
    return datetime.now(timezone.utc)


def measure(folder: Path, options: argparse.Namespace, name: str, limit: Any) -> Measured:
    with AgentServerProcess(latency=JOB_SECONDS, workers=4) as server:
        server.set_fault("capacity", capacity=options.capacity, retry_after="1")
        ledger = Ledger(f"sqlite:///{folder}/{name}.db", MemoryObjects())
        ledger.init()
        found = asyncio.run(Bench(server, ledger, limit, Measured(name, options.seconds)).run())
    path = f"   limit {' → '.join(found.limits)}" if found.limits else ""
    print(f"{name:10} {found.throughput:6.2f} jobs/s   {found.refused:5} answers 429{path}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capacity", type=int, default=6, help="jobs that the server takes at once")
    parser.add_argument("--seconds", type=float, default=40, help="of each measurement")
    options = parser.parse_args()
    most = 2 * options.capacity + 4
    fixed_limits = sorted({1, options.capacity // 2, options.capacity, options.capacity + 2, most})
    rule = {"start": 4, "min": 1, "max": most, "window": 3, "interval": 6}
    with tempfile.TemporaryDirectory() as folder:
        fixed = [measure(Path(folder), options, f"fixed-{n}", n) for n in fixed_limits if n]
        adaptive = measure(Path(folder), options, "adaptive", rule)
    best, worst = max(f.throughput for f in fixed), max(f.refused for f in fixed)
    share, cut = adaptive.throughput / best, 1 - adaptive.refused / worst
    print(f"throughput: {share:.0%} of the best fixed limit; 429s: {cut:.0%} fewer than with the worst")
    return 0 if share >= 0.8 and cut >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())

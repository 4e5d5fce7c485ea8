"""Items handed off by many processes that are killed at random, and started anew until every item is done.

``python -m support.handing_off <ledger URL> <folder> <items> <seed>`` prints JSON: what happened on the way.
``<folder>/airflow`` stands in for Airflow's table of runs: one file a run, created once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_relay.clock import utcnow
from airflow_relay.core.naming import slug
from airflow_relay.core.states import TERMINAL, RunState
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.trigger import send_grants
from support import forking
from support.pipelines import Driver, MemoryObjects, line

PROCESSES = 8
LIMITS = {"first": 12, "second": 6, "third": 4}
SUICIDE = 0.03
"""Chance to die at each place between two durable steps, beside the kills from outside."""
MEAN_LIFE_S = 0.05
"""Between two kills from outside, each of any of the processes."""
PIPELINE = line("line", **LIMITS)


class Worker:
    """What a stage's task process does, again and again, for whatever run it comes by."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.ledger = Ledger(url, MemoryObjects())
        self.airflow = folder / "airflow"
        self.dice = random.Random(seed)

    def run(self) -> None:
        """Until every item has come to its end."""
        while True:
            with self.ledger.read() as tx:
                open_runs = runs.open_runs(tx)
                over = not open_runs and all(i.state in TERMINAL for i in items.listing(tx, limit=10_000))
            if over:
                return
            self.send(self.ledger.unconfirmed(utcnow() + runs.RESEND_AFTER))
            self.dispatch()
            if open_runs:
                self.serve(self.dice.choice(open_runs).id)

    def serve(self, run_id: int) -> None:
        """Guard, work, hand off; whoever else serves the same run at this moment."""
        with self.ledger.read() as tx:
            run = runs.by_id(tx, run_id)
        if run.confirmed_at is None:
            return  # Airflow starts no task of a run that it does not have
        drive = Driver(self.ledger, PIPELINE)
        drive.now = utcnow()
        if drive.guard(run).decision.action.value != "go_on":
            return
        self.may_die()
        done = drive.end(run, value={"stage": run.stage})
        self.may_die()
        self.send(done.grants)

    def dispatch(self) -> None:
        drive = Driver(self.ledger, PIPELINE)
        drive.now = utcnow()
        self.send(drive.dispatch())

    def send(self, grants: Any) -> None:
        send_grants(self.ledger, grants, trigger=self.trigger)

    def trigger(self, *, dag_id: str, run_id: str, **_: Any) -> bool:
        """Airflow's part: a run id exists once."""
        self.may_die()
        try:
            (self.airflow / slug(f"{dag_id} {run_id}")).touch(exist_ok=False)
        except FileExistsError:
            return False
        finally:
            self.may_die()
        return True

    def may_die(self) -> None:
        if self.dice.random() < SUICIDE:
            os.kill(os.getpid(), signal.SIGKILL)


class Drama:
    """The workers, and who kills them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self.folder = folder
        self.dice = random.Random(seed)
        self.ledger = Ledger(url, MemoryObjects())
        self.started = 0
        self.killed = 0
        self.most_used: Counter[str] = Counter()
        for name in ("airflow", "errors"):
            (folder / name).mkdir()

    def play(self, count: int) -> dict[str, Any]:
        """Take in ``count`` items and have them handed off to their end."""
        self.ledger.intake(
            PIPELINE, [f"item {n}" for n in range(count)], Driver(self.ledger, PIPELINE).conditions, utcnow()
        )
        began = time.monotonic()
        workers = {self.start() for _ in range(PROCESSES)}
        while not self.is_over():
            time.sleep(self.dice.expovariate(1 / MEAN_LIFE_S))
            workers = {pid for pid in workers if not forking.has_ended(pid)}
            if workers:
                victim = self.dice.choice(sorted(workers))
                self.killed += forking.kill(victim)
                workers.discard(victim)
            while len(workers) < PROCESSES:
                workers.add(self.start())
        for pid in workers:
            forking.kill(pid)
        return {
            "seconds": round(time.monotonic() - began, 1),
            "started": self.started,
            "killed": self.killed,
            "most_used": self.most_used,
            "errors": [f.read_text() for f in (self.folder / "errors").iterdir()],
        }

    def start(self) -> int:
        self.started += 1
        seed = self.dice.randrange(2**32)
        return forking.fork(lambda: Worker(self.url, self.folder, seed).run(), errors=self.folder / "errors")

    def is_over(self) -> bool:
        with self.ledger.read() as tx:
            self.most_used |= Counter(runs.usage(tx))
            return all(i.state in TERMINAL for i in items.listing(tx, limit=10_000)) and not [
                r for r in runs.open_runs(tx) if r.state is RunState.OPEN
            ]


if __name__ == "__main__":
    url, folder, count, seed = sys.argv[1:]
    sys.stdout.write(json.dumps(Drama(url, Path(folder), int(seed)).play(int(count))) + "\n")

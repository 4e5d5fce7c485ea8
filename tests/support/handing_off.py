"""Items handed off by many processes that are killed at random, and started anew until every item is done.

``python -m support.handing_off <ledger URL> <folder> <items> <seed>`` prints JSON: what happened on the way.
``<folder>/airflow`` stands in for Airflow's table of runs: one file a run, created once.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_relay.clock import utcnow
from airflow_relay.core.item import Run
from airflow_relay.core.naming import slug
from airflow_relay.core.states import TERMINAL
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.trigger import send_grants
from support import forking
from support.pipelines import Driver, MemoryObjects, line

PROCESSES = 8
LIMITS = {"first": 12, "second": 6, "third": 4}
SUICIDE = 0.03
"""Chance to die at each place between two durable steps, beside the kills from outside."""
STEPS_PER_KILL = 6
"""Mean number of durable steps between two kills from outside: by progress, whatever the machine's load."""
PIPELINE = line("line", **LIMITS)


class Worker:
    """What a stage's task process does, again and again, for whatever run it comes by.

    :param told: file descriptor that gets a byte for each step done, for the one who kills.
    """

    def __init__(self, url: str, folder: Path, seed: int, told: int) -> None:
        self.ledger = Ledger(url, MemoryObjects())
        self.airflow = folder / "airflow"
        self.dice = random.Random(seed)
        self.told = told

    def run(self) -> None:
        """Until every item has come to its end."""
        while True:
            with self.ledger.read() as tx:
                open_runs = runs.open_runs(tx)
            known_to_airflow = [r for r in open_runs if r.confirmed_at is not None]
            if known_to_airflow:
                self.serve(self.dice.choice(known_to_airflow))
            elif open_runs:
                self.send(self.outbox())
            elif is_over(self.ledger):
                return

    def serve(self, run: Run) -> None:
        """Guard, work, hand off; whoever else serves the same run at this moment."""
        drive = Driver(self.ledger, PIPELINE)
        drive.now = utcnow()
        if drive.guard(run).decision.action.value != "go_on":
            return
        self.may_die()
        done = drive.end(run, value={"stage": run.stage})
        self.may_die()
        self.send(done.grants)

    def send(self, grants: Iterable[Run]) -> None:
        send_grants(self.ledger, grants, trigger=self.trigger)
        self.may_die()

    def outbox(self) -> list[Run]:
        """Grants that nobody has confirmed; without the minute in which Relay leaves them to their sender."""
        with self.ledger.write() as tx:
            return runs.claim_unconfirmed(tx, utcnow(), older_than=timedelta(0))

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
        os.write(self.told, b".")
        if self.dice.random() < SUICIDE:
            os.kill(os.getpid(), signal.SIGKILL)


def is_over(ledger: Ledger) -> bool:
    """Whether every item has come to its end."""
    with ledger.read() as tx:
        return all(i.state in TERMINAL for i in items.listing(tx, limit=10_000))


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
        self.steps, self.told = os.pipe()
        for name in ("airflow", "errors"):
            (folder / name).mkdir()

    def play(self, count: int) -> dict[str, Any]:
        """Take in ``count`` items and have them handed off to their end."""
        self.ledger.intake(
            PIPELINE, [f"item {n}" for n in range(count)], Driver(self.ledger, PIPELINE).conditions, utcnow()
        )
        began = time.monotonic()
        workers = {self.start() for _ in range(PROCESSES)}
        while not is_over(self.ledger):
            self.wait_for_steps(self.dice.randint(1, 2 * STEPS_PER_KILL))
            self.look()
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

        def work() -> None:
            os.close(self.steps)  # so that a worker ends with its next step when nobody is left to read of it
            Worker(self.url, self.folder, seed, self.told).run()

        return forking.fork(work, errors=self.folder / "errors")

    def wait_for_steps(self, count: int) -> None:
        """Until so many steps were made, or none came for a moment (everybody is dead, or all is done)."""
        while count > 0 and select.select([self.steps], [], [], 1.0)[0]:
            count -= len(os.read(self.steps, count))

    def look(self) -> None:
        """Keep the highest use of each capacity key."""
        with self.ledger.read() as tx:
            self.most_used |= Counter(runs.usage(tx))


if __name__ == "__main__":
    url, folder, count, seed = sys.argv[1:]
    sys.stdout.write(json.dumps(Drama(url, Path(folder), int(seed)).play(int(count))) + "\n")

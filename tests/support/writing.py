"""Many processes that write to one SQLite ledger beside readers.

``python -m support.writing <ledger URL> <folder> <seconds>`` prints JSON: what each writer and reader saw.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from airflow_relay.clock import utcnow
from airflow_relay.core.item import replay
from airflow_relay.ledger import items, registering, schema
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.registering import NewItem
from airflow_relay.ledger.store import Ledger
from support import forking
from support.pipelines import Driver, MemoryObjects, line

WRITERS = 32
READERS = 4
READER_PAUSE_S = 0.05
"""Between two looks, as a page or a command line takes them: readers are no load test of the processor."""
PIPELINE = line()


def write(url: str, name: str, until: float) -> dict[str, Any]:
    """Register items, each followed by a note in its log; ends with the time, after at least one."""
    ledger = Ledger(url, MemoryObjects())
    waits: list[float] = []
    written = 0
    while not written or time.monotonic() < until:
        new = NewItem(key=f"{name}.{written}", payload={"n": written})
        stored = ledger.prepare(new.payload, PIPELINE.name, new.key, "payload")
        with timed(ledger.dispatcher(), waits) as tx:
            registering.register(tx, PIPELINE, [(new, stored)], utcnow())
        with timed(ledger.write(), waits) as tx:
            item = items.locked(tx, items.find(tx, new.key).id)
            items.note(tx, item, "noted", utcnow())
        written += 1
    return {"written": written, "longest": max(waits)}


@contextmanager
def timed(transaction: AbstractContextManager[Tx], waits: list[float]) -> Iterator[Tx]:
    """The transaction; the seconds until it could begin are added to ``waits``."""
    asked = time.monotonic()
    with transaction as tx:
        waits.append(time.monotonic() - asked)
        yield tx


def read(url: str, name: str, until: float) -> dict[str, Any]:
    """Compare row and log of the newest items; the number of items may only grow."""
    ledger = Ledger(url, MemoryObjects())
    seen, rounds, longest = 0, 0, 0.0
    while not rounds or time.monotonic() < until:
        began = time.monotonic()
        with ledger.read() as tx:
            count = tx.conn.execute(select(func.count()).select_from(schema.items)).scalar_one()
            for item in items.listing(tx, limit=5):
                assert replay(item.id, items.log_of(tx, item.id)) == item, f"{name}: row and log disagree"
        assert count >= seen, f"{name}: {seen} items became {count}"
        seen, rounds = count, rounds + 1
        longest = max(longest, time.monotonic() - began)
        time.sleep(READER_PAUSE_S)
    return {"rounds": rounds, "longest": longest}


def report(work: Callable[[str, str, float], dict[str, Any]], url: str, file: Path, until: float) -> None:
    file.write_text(json.dumps(work(url, file.stem, until)))


def main(url: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Run all of them to their end."""
    for name in ("errors", "writers", "readers"):
        (folder / name).mkdir()
    ledger = Ledger(url, MemoryObjects())
    Driver(ledger, PIPELINE).intake()  # declares the pipeline
    until = time.monotonic() + seconds
    files = [folder / "writers" / f"w{n}" for n in range(WRITERS)]
    files += [folder / "readers" / f"r{n}" for n in range(READERS)]
    for file in files:
        work = write if file.parent.name == "writers" else read
        forking.fork(partial(report, work, url, file, until), errors=folder / "errors")
    for _ in files:
        os.wait()
    return {
        "errors": [f.read_text() for f in (folder / "errors").iterdir()],
        "writers": [json.loads(f.read_text()) for f in (folder / "writers").iterdir()],
        "readers": [json.loads(f.read_text()) for f in (folder / "readers").iterdir()],
    }


if __name__ == "__main__":
    given_url, given_folder, given_seconds = sys.argv[1:]
    found = main(given_url, Path(given_folder), float(given_seconds))
    sys.stdout.write(json.dumps(found) + "\n")

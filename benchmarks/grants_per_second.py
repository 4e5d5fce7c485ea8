"""Grants a second through the ledger on PostgreSQL, from several processes, with thousands of items ready.

    RELAY_TEST_POSTGRES_URL=postgresql+psycopg2://… python benchmarks/grants_per_second.py

Twenty pipelines of five stages share 16 agents and the 60 runs that Relay keeps in Airflow. Each process does
what hand-offs do, one after the other: close a run, free its slots, move its item, decide, grant. So every
grant is one transaction under the dispatcher's lock, and the figure is the rate of whole hand-offs. In the
end the ledger is searched for double grants, and for limits that were exceeded.

"decision" is the time from the first query for the snapshot to the last grant written, inside such a
transaction; "hand-off" is the whole transaction, the wait for the lock included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from airflow_relay.core import lifecycle
from airflow_relay.core.completion import Completion
from airflow_relay.core.item import Run
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, RunResult, RunState
from airflow_relay.ledger import declarations, dispatching, items, runs, schema
from airflow_relay.ledger.engine import Tx, dispose_engines
from airflow_relay.ledger.store import Ledger
from databases import create_database, drop_database

PIPELINES, AGENTS = 20, 16
FREE = Conditions()


class NoObjects:
    """Results of this benchmark are small."""

    def write(self, name: str, data: bytes) -> str:
        raise AssertionError(f"{name}: {len(data)} bytes are too large")

    def read(self, ref: str) -> bytes:
        raise AssertionError(ref)


def pipeline(number: int) -> Pipeline:
    def stage(name: str, to: Any, **more: Any) -> Stage:
        return Stage(name, status=f"{name} done", to=to, **more)

    return Pipeline(
        f"p{number:02}",
        [
            stage("research", "draft", schedule="0 7 * * *", limit=3),
            stage("draft", "critique", limit=2, keys=("agents",)),
            stage("critique", "qa", limit=1, keys=("agents",)),
            stage("qa", "ship"),
            stage("ship", END),
        ],
        limits={"agents": AGENTS},
    )


def fill(ledger: Ledger, declared: Sequence[Pipeline], count: int) -> None:
    """Ready items in the entry stages, registered within the last ten hours."""
    now = datetime.now(timezone.utc)
    with ledger.write() as tx:
        for one in declared:
            declarations.declare(tx, one, now)
        rows, events = [], []
        for number in range(count):
            at = now - timedelta(seconds=36_000 * number / count)
            item, change = lifecycle.registered(
                pipeline=declared[number % len(declared)], key=f"item-{number}", priority=number % 3, now=at
            )
            names = [c.name for c in schema.items.columns if c.name != "id"]
            rows.append({**{name: getattr(item, name) for name in names}, "keys": list(item.keys)})
            events.append({**items.event_row(item, change), "item_id": number + 1})
        tx.conn.execute(insert(schema.items), rows)
        tx.conn.execute(insert(schema.events), events)
        if not tx.is_sqlite:
            tx.conn.exec_driver_sql("ANALYZE")  # as autovacuum does it for a ledger that has grown over time


def timed_decisions(times: list[float]) -> None:
    """Time each decision of this process from outside."""
    original = dispatching.run_dispatch

    def timed(tx: Tx, conditions: Conditions, now: datetime) -> list[Run]:
        begin = time.perf_counter()
        try:
            return original(tx, conditions, now)
        finally:
            times.append(time.perf_counter() - begin)

    dispatching.run_dispatch = timed


def work(url: str, first: Sequence[int], seconds: float, start: Any, out: Any) -> None:
    """Hand off runs, one after the other, until the time is over."""
    ledger, declared = Ledger(url, NoObjects()), {f"p{n:02}": pipeline(n) for n in range(PIPELINES)}
    decisions: list[float] = []
    timed_decisions(decisions)
    with ledger.read() as tx:
        mine = [runs.by_id(tx, run) for run in first]
    start.wait()
    granted, hand_offs, end = 0, [], time.monotonic() + seconds
    while mine and time.monotonic() < end:
        run = mine.pop(0)
        begin = time.perf_counter()
        done = ledger.hand_off(
            run,
            pipeline=declared[run.pipeline],
            completion=Completion(RunResult.SUCCESS),
            stored=ledger.prepare({"ok": True}, run.pipeline, "key", "result"),
            clear_number=0,
            conditions=FREE,
            now=datetime.now(timezone.utc),
        )
        hand_offs.append(time.perf_counter() - begin)
        mine += done.grants
        granted += len(done.grants)
    dispose_engines()
    out.put((granted, decisions, hand_offs))


def check(ledger: Ledger) -> str:
    """What must hold afterwards; returns one sentence."""
    with ledger.read() as tx:
        grants = tx.conn.execute(select(func.count()).select_from(schema.runs)).scalar_one()
        pair = (schema.runs.c.item_id, schema.runs.c.epoch)
        twice = tx.conn.execute(select(*pair).group_by(*pair).having(func.count() > 1)).all()
        open_now = select(schema.runs.c.item_id).where(schema.runs.c.state == RunState.OPEN)
        beside = tx.conn.execute(open_now.group_by(schema.runs.c.item_id).having(func.count() > 1)).all()
        used = runs.usage(tx)
        limits = dispatching.effective_limits(declarations.load_all(tx), FREE)
    assert not twice, f"granted twice: {twice}"
    assert not beside, f"two open runs of one item: {beside}"
    assert all(count <= limits.get(key, count) for key, count in used.items()), used
    return f"{grants} grants, none twice; in use at the end: {used.get('agents', 0)} of {AGENTS} agents"


def figures(name: str, values: Sequence[float]) -> str:
    ordered = sorted(v * 1000 for v in values)
    high = ordered[int(len(ordered) * 0.95)]
    middle = statistics.median(ordered)
    return f"{name:10} median {middle:6.1f} ms   p95 {high:6.1f} ms   max {ordered[-1]:6.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ready", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    server = os.environ.get("RELAY_TEST_POSTGRES_URL")
    if not server:
        parser.error("set RELAY_TEST_POSTGRES_URL (postgresql+psycopg2://user:password@host/database)")
    url = create_database(server, prefix="relay_bench")
    try:
        measure(url, options)
    finally:
        dispose_engines()
        drop_database(server, url)


def measure(url: str, options: argparse.Namespace) -> None:
    ledger = Ledger(url, NoObjects())
    ledger.init()
    fill(ledger, [pipeline(n) for n in range(PIPELINES)], options.ready)
    first = ledger.dispatch(FREE, datetime.now(timezone.utc))
    with ledger.read() as tx:
        limit = dispatching.effective_limits(declarations.load_all(tx), FREE)[AIRFLOW_RUNS_KEY]
    print(f"{options.ready} items ready, {len(first)} of {limit} runs granted, {options.processes} processes")
    dispose_engines()
    spawn = multiprocessing.get_context("spawn")
    start, out = spawn.Barrier(options.processes + 1), spawn.Queue()
    workers = [
        spawn.Process(
            target=work,
            args=(url, [r.id for r in first[n :: options.processes]], options.seconds, start, out),
        )
        for n in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    start.wait()
    done = [out.get() for _ in workers]
    for worker in workers:
        worker.join()
    granted = sum(count for count, _, _ in done)
    print(f"{granted / options.seconds:.0f} grants a second ({granted} in {options.seconds:g} s)")
    print(figures("decision", [t for _, times, _ in done for t in times]))
    print(figures("hand-off", [t for _, _, times in done for t in times]))
    print(check(ledger))


if __name__ == "__main__":
    main()

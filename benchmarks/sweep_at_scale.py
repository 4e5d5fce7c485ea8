"""The recovery sweep over a ledger with 1,000,000 items, 10,000 of them stale.

    python benchmarks/sweep_at_scale.py [--items 1000000] [--stale 10000] [--runs 500] [--postgres URL]

A sweep from rules to heartbeat, as ``relay__recovery`` runs it, in one process. Airflow is played: it answers
each question about at most 50 runs with their task states, and counts the questions. Each database is filled
first, which is not timed. Memory is the peak of the whole process, the filling included. The same sweep over
a ledger of a tenth of the size, with as many stale items, shows whether its cost grows with the ledger.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import String, cast, insert, select, text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState, PriorityClass, RunState
from airflow_relay.ledger import declarations
from airflow_relay.ledger.engine import Tx, engine_for
from airflow_relay.ledger.schema import items, runs, slots
from airflow_relay.ledger.store import Ledger
from airflow_relay.notifications.alerts import Sent
from airflow_relay.operators import reconcile, sweep
from databases import create_database, drop_database

CHUNK = 20_000
STAGES = ("research", "draft", "critique", "ship")
PIPELINE = Pipeline(
    "scale",
    [
        Stage("research", to="draft", schedule="0 7 * * *"),
        Stage("draft", to="critique"),
        Stage("critique", to="ship"),
        Stage("ship", to=END),
    ],
)


class Objects(dict[str, bytes]):
    """An object store in memory; nothing here is large enough for it."""

    def write(self, name: str, data: bytes) -> str:
        self[name] = data
        return name

    def read(self, ref: str) -> bytes:
        return self[ref]


@dataclass(frozen=True)
class Scale:
    """How many items there are, how many of them are stale, and how many open runs hold slots."""

    items: int
    stale: int
    held: int


@dataclass
class PlayedAirflow:
    """Knows every run: all but one in ten are at work; the others failed without telling."""

    questions: int = 0
    asked: int = 0
    triggered: list[str] = field(default_factory=list)

    def task_states(self, dag_id: str, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:  # noqa: ARG002
        self.questions += 1
        self.asked += len(run_ids)
        return {run: _states(int(run.rsplit("-", 1)[1])) for run in run_ids}

    def trigger(self, *, dag_id: str, run_id: str, **_: Any) -> bool:  # noqa: ARG002
        self.triggered.append(run_id)
        return True


def _states(number: int) -> Mapping[str, Any]:
    if number % 10 == 0:
        return {"work": "failed", "hand_off": "failed"}
    return {"work": "running", "hand_off": None}


def fill(ledger: Ledger, scale: Scale) -> None:
    """Mostly finished items; ``stale`` failed ones, and ``held`` running ones, all idle for a day."""
    now = utcnow()
    with ledger.write() as tx:
        declarations.declare(tx, PIPELINE, now)
    told = min(scale.stale + scale.held + CHUNK, scale.items)
    for start in range(0, told, CHUNK):
        rows = [_item(n, scale, now) for n in range(start, min(start + CHUNK, told))]
        with ledger.write() as tx:
            tx.conn.execute(insert(items), rows)
    for start in range(told, scale.items, CHUNK):
        with ledger.write() as tx:
            _copy(tx, start, min(CHUNK, scale.items - start), told)
    with ledger.write() as tx:
        tx.conn.execute(insert(runs), [_run(n, scale, now, tx.ledger_id) for n in range(scale.held)])
        tx.conn.execute(insert(slots), [{"run": n + 1, "key": "airflow.runs"} for n in range(scale.held)])
        if not tx.is_sqlite:
            for table in ("items", "runs"):
                tx.conn.execute(
                    text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}")
                )
            tx.conn.execute(text("ANALYZE"))


def _copy(tx: Tx, start: int, count: int, told: int) -> None:
    """Finished items after the first ``start`` ones: copies of the last that were told one by one.

    They differ by id and key alone; the database makes them much faster than this process could.
    """
    by = start - told + CHUNK
    changed = {"id": items.c.id + by, "key": "item-" + cast(items.c.id + by - 1, String)}
    source = select(*(changed.get(c.name, c) for c in items.columns)).where(
        items.c.id.between(told - CHUNK + 1, told - CHUNK + count)
    )
    tx.conn.execute(insert(items).from_select([c.name for c in items.columns], source))


def _item(number: int, scale: Scale, now: datetime) -> dict[str, Any]:
    is_stale = number < scale.stale
    is_held = scale.stale <= number < scale.stale + scale.held
    stage = STAGES[number % 4]
    state = ItemState.FAILED if is_stale else ItemState.RUNNING if is_held else ItemState.DONE
    return {
        "id": number + 1,
        "pipeline": PIPELINE.name,
        "key": f"item-{number}",
        "state": state,
        "stage": stage,
        "status": "",
        "epoch": 1,
        "klass": PriorityClass.P2,
        "rank": PIPELINE.rank(stage),
        "priority": 0,
        "keys": list(PIPELINE.keys(stage)),
        "dag_id": PIPELINE.dag_id(stage),
        "visits": {stage: 1},
        # One in ten failed for good and goes to the dead letters; the others may run again.
        "error_class": "auth" if is_stale and number % 10 == 0 else "timeout",
        "attempts": 0,
        "registered_at": now - timedelta(days=2),
        "last_activity_at": now - timedelta(days=1) + timedelta(milliseconds=number % 1000),
    }


def _run(number: int, scale: Scale, now: datetime, ledger_id: str) -> dict[str, Any]:
    item = scale.stale + number + 1
    stage = STAGES[(item - 1) % 4]
    return {
        "id": number + 1,
        "item_id": item,
        "pipeline": PIPELINE.name,
        "stage": stage,
        "visit": 1,
        "epoch": 1,
        "dag_id": PIPELINE.dag_id(stage),
        "run_id": f"run-{number}",
        "ledger_id": ledger_id,
        "state": RunState.OPEN,
        "klass": PriorityClass.P2,
        "clear_number": 0,
        "attempt": 0,
        "granted_at": now - timedelta(days=1),
        "sent_at": now - timedelta(days=1),
        "confirmed_at": now - timedelta(days=1),
        "started_at": now - timedelta(days=1),
    }


def one_sweep(ledger: Ledger, airflow: PlayedAirflow, held: int) -> dict[str, float]:
    """The steps of a sweep → seconds each."""
    conditions = Conditions(limits={"airflow.runs": held + 60})
    seconds: dict[str, float] = {}
    with (
        mock.patch.object(sweep, "get_ledger", return_value=ledger),
        mock.patch.object(sweep, "read_conditions", return_value=conditions),
        mock.patch.object(sweep.Variable, "get", return_value=None),
        mock.patch.object(sweep, "send_alerts", return_value=Sent(0, 0)),
        mock.patch.object(compat, "task_states", airflow.task_states),
        mock.patch.object(compat, "dag_run_state", return_value="running"),
        mock.patch.object(compat, "trigger_dag_run", airflow.trigger),
    ):
        with timed(seconds, "rules"):
            rules = sweep.load_rules({})
        with timed(seconds, "scan"):
            scanned = sweep.scan(rules)
        with timed(seconds, "reconcile"):
            reconciled = sweep.reconcile_runs(rules, scanned, None)
        with timed(seconds, "decide"):
            decided = sweep.decide(rules, reconciled)
        with timed(seconds, "refire"):
            refired = sweep.refire(rules, decided)
        with timed(seconds, "escalate"):
            escalated = sweep.escalate(rules, decided, {})
        with timed(seconds, "heartbeat"):
            beat = sweep.heartbeat(rules, [scanned, reconciled, decided, refired, escalated])
    handed_on = sum(len(json.dumps(x)) for x in (rules, scanned, reconciled, decided, refired, escalated))
    print(beat["summary"])
    print(f"handed on by XCom: {handed_on / 1000:.0f} kB")
    return seconds


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - begin


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(url: str, name: str, scale: Scale) -> tuple[float, bool]:
    """Seconds of the whole sweep, and whether it kept within the limits."""
    ledger, airflow = Ledger(url, Objects()), PlayedAirflow()
    ledger.init()
    print(f"--- {name}: filling {scale.items:,} items")
    fill(ledger, scale)
    seconds = one_sweep(ledger, airflow, scale.held)
    whole = sum(seconds.values())
    print("  ".join(f"{step} {value:.2f} s" for step, value in seconds.items()))
    print(
        f"{name}: whole sweep {whole:.1f} s, deciding {seconds['decide']:.1f} s, peak {peak_mb():.0f} MB; "
        f"{airflow.questions} questions about {airflow.asked} runs, {len(airflow.triggered)} runs triggered"
    )
    engine_for(url).dispose()
    few = airflow.questions <= math.ceil(airflow.asked / reconcile.BATCH) + len(STAGES)
    return whole, whole < 15 and seconds["decide"] < 5 and peak_mb() < 300 and few


def compare(urls: Sequence[str], name: str, scale: Scale) -> bool:
    """The sweep over a ledger of a tenth of the size and over that of full size."""
    small = replace(scale, items=max(scale.items // 10, scale.stale + scale.held))
    few, _ = measure(urls[0], name, small)
    many, good = measure(urls[1], name, scale)
    print(f"{name}: {scale.items:,} items against {small.items:,}, as many stale: ratio {many / few:.2f}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--stale", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=500, help="open runs that hold slots")
    parser.add_argument("--postgres", help="URL of any database on a server where databases may be created")
    arguments = parser.parse_args()
    scale = Scale(arguments.items, arguments.stale, arguments.runs)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"sqlite:///{folder}/small.db", f"sqlite:///{folder}/ledger.db"]
        good = compare(files, "SQLite", scale)
    if arguments.postgres:
        urls = [create_database(arguments.postgres, prefix="relay_bench") for _ in range(2)]
        try:
            good = compare(urls, "PostgreSQL", scale) and good
        finally:
            for url in urls:
                drop_database(arguments.postgres, url)
    print("within the limits (15 s, deciding 5 s, 300 MB)" if good else "NOT within the limits")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

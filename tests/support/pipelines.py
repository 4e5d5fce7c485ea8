"""Pipelines and a driver for tests of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_relay.core.completion import Completion, StageShape
from airflow_relay.core.item import Item, Run
from airflow_relay.core.pipeline import DISCARD, END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import items, runs
from airflow_relay.ledger.guarding import Guarded
from airflow_relay.ledger.store import HandedOff, Ledger

START = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
SHAPE = StageShape(("work",), ("work",), "work")
FREE = Conditions()


def line(name: str = "line", **limits: int) -> Pipeline:
    """Three stages in a row: first → second → third."""
    return Pipeline(
        name,
        [
            Stage(
                "first",
                status="firsted",
                to="second",
                schedule="0 7 * * *",
                limit=limits.get("first"),
                timeout=timedelta(hours=1),
            ),
            Stage("second", status="seconded", to="third", limit=limits.get("second")),
            Stage("third", status="thirded", to=END, limit=limits.get("third")),
        ],
    )


def loop(name: str = "loop") -> Pipeline:
    """A draft that a review sends back at most twice, or discards."""
    return Pipeline(
        name,
        [
            Stage("draft", to="review", schedule="0 7 * * *", max_visits=3, after_max_visits="ship"),
            Stage("review", to={"ok": "ship", "again": "draft", "bad": DISCARD}),
            Stage("ship", to=END),
        ],
    )


class MemoryObjects:
    """An object store in a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> str:
        self.kept[name] = data
        return name

    def read(self, ref: str) -> bytes:
        return self.kept[ref]

    def delete(self, ref: str) -> None:
        self.kept.pop(ref, None)


class Driver:
    """Plays Airflow for a ledger, with a clock of its own."""

    def __init__(self, ledger: Ledger, pipeline: Pipeline) -> None:
        self.ledger = ledger
        self.pipeline = pipeline
        self.now = START
        self.conditions = FREE

    def later(self, **delta: float) -> datetime:
        self.now += timedelta(**delta)
        return self.now

    def intake(self, *keys: str) -> list[Run]:
        return self.ledger.intake(self.pipeline, list(keys), self.conditions, self.now)[1]

    def guard(self, run: Run, *, clear_number: int = 0) -> Guarded:
        """What a guarded task of the run gets, reopening included."""
        guarded = self.ledger.ask_guard(
            dag_id=run.dag_id,
            run_id=run.run_id,
            clear_number=clear_number,
            pipeline=self.pipeline,
            shape=SHAPE,
            is_entry_dag=False,
            named_ledger=None,
            now=self.now,
        )
        if guarded.decision.action.value in ("reopen", "rewind"):
            return self.ledger.reopen(
                dag_id=run.dag_id,
                run_id=run.run_id,
                clear_number=clear_number,
                pipeline=self.pipeline,
                shape=SHAPE,
                conditions=self.conditions,
                now=self.now,
            )
        return guarded

    def end(
        self,
        run: Run,
        outcome: str | None = None,
        *,
        result: RunResult = RunResult.SUCCESS,
        error: str | None = None,
        value: Any = None,
        clear_number: int = 0,
    ) -> HandedOff:
        stored = self.ledger.prepare(value, run.pipeline, str(run.item_id), "result")
        return self.ledger.hand_off(
            run,
            pipeline=self.pipeline,
            completion=Completion(result, outcome, error, error),
            stored=stored if result is RunResult.SUCCESS else None,
            clear_number=clear_number,
            conditions=self.conditions,
            now=self.now,
        )

    def serve(self, run: Run, outcome: str | None = None) -> list[Run]:
        """Confirm, start and complete a run; returns what was granted."""
        self.ledger.confirm([run.id], self.now)
        assert self.guard(run).decision.action.value == "go_on"
        return list(self.end(run, outcome).grants)

    def dispatch(self) -> list[Run]:
        return self.ledger.dispatch(self.conditions, self.now)

    def item(self, key: str) -> Item:
        with self.ledger.read() as tx:
            return items.find(tx, key, self.pipeline.name)

    def run(self, run: Run) -> Run:
        with self.ledger.read() as tx:
            return runs.by_id(tx, run.id)

    def usage(self) -> dict[str, int]:
        with self.ledger.read() as tx:
            return runs.usage(tx)

    def log(self, key: str) -> Sequence[str]:
        item = self.item(key)
        with self.ledger.read() as tx:
            return [f"{e.kind.value}: {e.text}" for e in items.log_of(tx, item.id)]

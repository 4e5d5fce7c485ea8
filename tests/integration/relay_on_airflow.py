"""A pipeline on a real Airflow, seen through its ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from airflow_instance import AirflowInstance
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import ItemState
from airflow_relay.hooks.objects import ObjectFolder
from airflow_relay.ledger import items, results, runs
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger

TICK_DAG = "relay__dispatch"


class RelayOnAirflow:
    """Starts items of one pipeline and waits for what the ledger says of them.

    :param ledger_url: by default the embedded SQLite ledger's.
    """

    def __init__(
        self, airflow: AirflowInstance, pipeline: str, entry: str, *, ledger_url: str | None = None
    ) -> None:
        self.airflow = airflow
        self.api = airflow.api
        self.pipeline = pipeline
        self.entry_dag = f"{pipeline}__{entry}"
        home = airflow.home
        self.ledger = Ledger(
            ledger_url or f"sqlite:///{home}/relay/ledger.db", ObjectFolder(f"file://{home}/relay/results")
        )
        self.signals = Path(home) / "signals"
        self.signals.mkdir(exist_ok=True)

    def dag(self, stage: str) -> str:
        return f"{self.pipeline}__{stage}"

    def new_key(self, name: str) -> str:
        return f"{name}-{uuid.uuid4().hex[:6]}"

    def start(self, name: str, **payload: Any) -> str:
        """Start an item by hand through the entry stage's form; returns its key."""
        key = self.new_key(name)
        self.api.trigger_dag(self.entry_dag, conf={"item_id": key, "payload": payload})
        return key

    def signal(self, key: str, stage: str) -> None:
        (self.signals / f"{key}.{stage}").touch()

    def item(self, key: str) -> Item | None:
        try:
            with self.ledger.read() as tx:
                return items.find(tx, key, self.pipeline)
        except LedgerError:  # not there yet
            return None

    def runs(self, key: str) -> list[Run]:
        item = self.item(key)
        assert item is not None
        with self.ledger.read() as tx:
            return runs.of_item(tx, item.id)

    def results(self, key: str) -> dict[str, Any]:
        item = self.item(key)
        assert item is not None
        with self.ledger.read() as tx:
            return dict(results.latest(results.of_item(tx, item.id), self.ledger.objects))

    def log(self, key: str) -> list[str]:
        item = self.item(key)
        assert item is not None
        with self.ledger.read() as tx:
            return [e.text for e in items.log_of(tx, item.id)]

    def wait_for(
        self,
        key: str,
        *states: ItemState,
        stage: str | None = None,
        timeout: float = 90,
        more: Callable[[Item], bool] | None = None,
    ) -> Item:
        """Wait until the item is in one of the states (and at the stage)."""

        def there() -> Item | None:
            item = self.item(key)
            if item is None or item.state not in states or (stage is not None and item.stage != stage):
                return None
            return item if more is None or more(item) else None

        what = f"item {key} to be {' or '.join(s.value for s in states)} at {stage or 'any stage'}"
        try:
            return self.airflow.wait(there, what=what, timeout=timeout)
        except Exception as error:
            seen = self.item(key)
            told = "\n".join(self.log(key)) if seen else ""
            raise AssertionError(f"{what}; it is {seen}\n{told}") from error

    def run_of(self, key: str, stage: str) -> Run:
        """The item's newest run of the stage."""
        return [r for r in self.runs(key) if r.stage == stage][-1]

    def wait_for_run(self, run: Run, *states: str) -> dict[str, Any]:
        return dict(
            self.airflow.wait_for_run(
                run.dag_id, run.run_id, states=frozenset(states or ("success", "failed"))
            )
        )

    def tick(self) -> None:
        """One round of the tick, to its end."""
        run_id = self.api.trigger_dag(TICK_DAG)
        run = self.airflow.wait_for_run(TICK_DAG, run_id)
        assert run["state"] == "success", run

    def airflow_runs(self, key: str, stages: Collection[str]) -> dict[str, list[str]]:
        """Stage → run ids that Airflow has for the item."""
        known = {r.run_id for r in self.runs(key)}
        return {
            stage: [r["dag_run_id"] for r in self.api.list_runs(self.dag(stage)) if r["dag_run_id"] in known]
            for stage in stages
        }

    def airflow_forgets(self, run: Run) -> None:
        """Delete a run under way: the API refuses it, the database does not."""
        engine = create_engine(self.airflow.metadata_url)
        with engine.begin() as conn:
            conn.execute(text("DELETE FROM dag_run WHERE run_id = :run_id"), {"run_id": run.run_id})
        engine.dispose()

    def close(self) -> None:
        engine_for(self.ledger.url).dispose()

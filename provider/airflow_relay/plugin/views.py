"""What the page shows, as values; nothing here knows about HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from airflow_relay import links
from airflow_relay.core.item import Item, Run
from airflow_relay.core.naming import dag_id as dag_id_of
from airflow_relay.core.states import PriorityClass
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.ledger import dead_letters, items, reports, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations.overview import UNFINISHED, overview
from airflow_relay.plugin.access import Reader

PERIOD: Final = timedelta(days=1)
SHOWN: Final = 200
"""Rows of a list; the command line shows more."""

_CLASSES: Final = frozenset(klass.value for klass in PriorityClass)


def front(ledger: Ledger, who: Reader, now: datetime) -> dict[str, Any]:
    """Stages with their items and why they wait, dead letters, breakers, holds, heartbeats."""
    found = overview(ledger, read_conditions(ledger, now), now, PERIOD)
    places = [tuple(row["stage"].split(".", 1)) for row in found["stages"]]
    with ledger.read() as tx:
        letters = dead_letters.listing(tx, limit=SHOWN)
    places += [(letter.pipeline, letter.stage) for letter in letters]
    allowed = _readable(who, places)
    seen = {pipeline for pipeline, _ in allowed}
    return {
        **found,
        "stages": [row for row in found["stages"] if tuple(row["stage"].split(".", 1)) in allowed],
        "breakers": [row for row in found["breakers"] if tuple(row["stage"].split(".", 1)) in allowed],
        "holds": [row for row in found["holds"] if _pipeline_of(row["scope"]) in seen | _CLASSES],
        "intakes": [row for row in found["intakes"] if row["pipeline"] in seen],
        "letters": [letter for letter in letters if (letter.pipeline, letter.stage) in allowed],
        "is_cut": len(letters) == SHOWN,
        "states": [state.value for state in UNFINISHED],
    }


def _pipeline_of(scope: str) -> str:
    """What a hold concerns: a class, a pipeline, or the pipeline of a DAG that cannot be triggered."""
    return scope.split("__", 1)[0]


def stage(ledger: Ledger, who: Reader, pipeline: str, name: str, now: datetime) -> dict[str, Any] | None:
    """The items at a stage that are not finished; ``None`` when the user may not see them."""
    if not _readable(who, [(pipeline, name)]):
        return None
    conditions = read_conditions(ledger, now)
    with ledger.read() as tx:
        found = items.listing(tx, pipeline=pipeline, stage=name, states=UNFINISHED, limit=SHOWN)
        standing = reports.standings(tx, found, conditions, now)
    return {
        "pipeline": pipeline,
        "stage": name,
        "items": [{"item": item, "standing": standing[item.id]} for item in found],
    }


def item(ledger: Ledger, who: Reader, item_id: int, now: datetime) -> dict[str, Any] | None:
    """An item with its runs and its log; ``None`` when there is none, or the user may not see all of it."""
    conditions = read_conditions(ledger, now)
    with ledger.read() as tx:
        found = _find(tx, item_id)
        if found is None:
            return None
        of_item = runs.of_item(tx, item_id)
        log = items.log_of(tx, item_id)
        standing = reports.standings(tx, [found], conditions, now)[item_id]
        letters = dead_letters.of_item(tx, item_id)
    touched = {found.dag_id, *(run.dag_id for run in of_item)}
    if who.readable(touched) != touched:
        return None
    return {
        "item": found,
        "standing": standing,
        "runs": [_run(run) for run in of_item],
        "log": log,
        "letters": letters,
        "may_act": who.may_trigger(found.dag_id),
    }


def find_item(ledger: Ledger, who: Reader, item_id: int) -> Item | None:
    """The item, when the user may read its DAG."""
    with ledger.read() as tx:
        found = _find(tx, item_id)
    return found if found is not None and who.readable({found.dag_id}) else None


def _find(tx: Tx, item_id: int) -> Item | None:
    return next(iter(items.by_ids(tx, [item_id])), None)


def _run(run: Run) -> Mapping[str, Any]:
    ended = run.closed_at
    return {
        "run": run,
        "latency": None if run.started_at is None else run.started_at - run.granted_at,
        "duration": None if run.started_at is None or ended is None else ended - run.started_at,
        "url": f"{links.base_path()}/dags/{run.dag_id}/runs/{run.run_id}",
    }


def _readable(who: Reader, places: Sequence[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    by_dag = {dag_id_of(*place): place for place in places}
    return frozenset(by_dag[dag_id] for dag_id in who.readable(by_dag.keys()))

"""``airflow relay status``: what goes on in all pipelines, on one screen."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow_relay.cli import breakers, holds, output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import command, known_conditions, open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState
from airflow_relay.core.watch import Watched
from airflow_relay.ledger import alerts, declarations, reports
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.reports import Place, StageFigures, WaitingRoom
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations.health import check_recovery

_STATES = (ItemState.READY, ItemState.GRANTED, ItemState.RUNNING, ItemState.FAILED, ItemState.DEAD)
_STAGE_COLUMNS = (
    "stage",
    *(state.value for state in _STATES),
    "grants",
    "dispatch_success",
    "succeeded",
    "ended_badly",
    "mean_wait",
    "mean_latency",
    "mean_phase",
    "waits_for",
)
_INTAKE_COLUMNS = ("pipeline", "cycles", "skipped", "skipped_before", "trend", "registered", "last", "reason")


@command
def status(args: argparse.Namespace) -> int:
    """Figures of the last ``--period``; states as they are now."""
    ledger, now = open_ledger(), utcnow()
    conditions = known_conditions(ledger, now)
    document = report_of(ledger, conditions, now, args.period)
    titles = {
        "pipelines": ("Pipelines", ("pipeline", "class", "stages", "in_progress", "done", "discarded")),
        "stages": ("Stages", _STAGE_COLUMNS),
        "capacity": ("Capacity", ("key", "used", "limit")),
        "breakers": ("Breakers", breakers.COLUMNS),
        "holds": ("Holds", holds.COLUMNS),
        "intakes": ("Intake cycles", _INTAKE_COLUMNS),
        "heartbeats": ("Heartbeats", ("name", "status", "age", "sentence")),
        "alerts": ("Alerts that no channel has taken", ("waiting", "last_error")),
    }
    tables = [Table(title, columns, document[name]) for name, (title, columns) in titles.items()]
    output.write(args.output, document, *tables, empty="No pipeline is declared yet: run an intake.")
    return 0


def report_of(ledger: Ledger, conditions: Conditions, now: datetime, period: timedelta) -> dict[str, Any]:
    """The whole screen as a document; the page in Airflow's UI shows the same."""
    heartbeats = check_recovery(lambda: ledger, now=now)
    with ledger.read() as tx:
        return {**_figures(tx, conditions, now, period), "heartbeats": [_beat(w) for w in heartbeats.watched]}


def _beat(watched: Watched) -> dict[str, Any]:
    return {
        "name": watched.name,
        "status": watched.health,
        "age": watched.age,
        "sentence": watched.sentence,
    }


def _figures(tx: Tx, conditions: Conditions, now: datetime, period: timedelta) -> dict[str, Any]:
    declared = declarations.load_all(tx)
    population = reports.population(tx)
    waiting = WaitingRoom.look(tx, conditions, now).by_stage()
    figures = reports.stage_figures(tx, now - period)
    unsent, last_error = alerts.count_unsent(tx)
    return {
        "at": now,
        "period_s": period.total_seconds(),
        "pipelines": _pipelines(declared, population, reports.finished(tx, now - period)),
        "stages": [
            _stage(place, population.get(place, Counter()), figures.get(place), waiting.get(place))
            for place in _places(declared, population)
        ],
        "capacity": [
            {"key": use.key, "used": use.used, "limit": use.limit}
            for use in reports.key_use(reports.snapshot(tx, conditions, now))
        ],
        "breakers": breakers.rows(tx, now),
        "holds": holds.rows(tx, conditions, now),
        "intakes": _intakes(tx, now, period),
        "alerts": [{"waiting": unsent, "last_error": last_error}] if unsent else [],
    }


def _places(declared: Mapping[str, Pipeline], population: Mapping[Place, Any]) -> list[Place]:
    """Declared stages in order, then stages that only items know."""
    known = [(p.name, s.name) for p in declared.values() for s in p.stages]
    return list(dict.fromkeys([*known, *population]))


def _pipelines(
    declared: Mapping[str, Pipeline],
    population: Mapping[Place, Counter[ItemState]],
    finished: Mapping[str, Counter[ItemState]],
) -> list[dict[str, Any]]:
    rows = []
    for pipeline in declared.values():
        own = [counts for (name, _), counts in population.items() if name == pipeline.name]
        ended = finished.get(pipeline.name, Counter())
        rows.append(
            {
                "pipeline": pipeline.name,
                "class": pipeline.klass,
                "stages": len(pipeline.stages),
                "in_progress": sum(sum(counts.values()) for counts in own),
                "done": ended[ItemState.DONE],
                "discarded": ended[ItemState.DISCARDED],
            }
        )
    return rows


def _stage(
    place: Place, counts: Counter[ItemState], figures: StageFigures | None, waits_for: str | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "stage": ".".join(place),
        **{state.value: counts[state] for state in _STATES},
        "waits_for": waits_for,
    }
    if figures is None:
        return row
    success = figures.dispatch_success
    return {
        **row,
        "grants": figures.granted,
        "dispatch_success": None if success is None else round(success, 4),
        "succeeded": figures.succeeded,
        "ended_badly": figures.failed,
        "mean_wait": _span(figures.mean_wait_s),
        "mean_latency": _span(figures.mean_latency_s),
        "mean_phase": _span(figures.mean_phase_s),
    }


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _intakes(tx: Tx, now: datetime, period: timedelta) -> list[dict[str, Any]]:
    return [
        {
            "pipeline": pipeline,
            "cycles": f.cycles,
            "skipped": f.skipped,
            "skipped_before": f.skipped_before,
            "trend": f.trend,
            "registered": f.registered,
            "last": f.last_at,
            "reason": f.last_reason,
        }
        for pipeline, f in reports.intake_figures(tx, now, period).items()
    ]

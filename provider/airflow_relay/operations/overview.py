"""What goes on in all pipelines, as one document: for ``airflow relay status`` and the page in Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from airflow_relay.core.breaker import gate
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import ItemState
from airflow_relay.core.watch import Watched
from airflow_relay.ledger import alerts, breakers, declarations, governing, reports
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.reports import Place, StageFigures, WaitingRoom
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations.health import check_recovery

UNFINISHED: Final = (
    ItemState.READY,
    ItemState.GRANTED,
    ItemState.RUNNING,
    ItemState.FAILED,
    ItemState.DEAD,
)


def overview(ledger: Ledger, conditions: Conditions, now: datetime, period: timedelta) -> dict[str, Any]:
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
        "adaptive": [
            {
                "key": f.key,
                "limit": f.limit,
                "min": f.least,
                "max": f.most,
                "changed_at": f.changed_at,
                "why": f.told,
            }
            for f in governing.adaptive_figures(tx, conditions.adaptive)
        ],
        "breakers": breaker_rows(tx, now),
        "holds": hold_rows(tx, conditions, now),
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
        "pipeline": place[0],
        **{state.value: counts[state] for state in UNFINISHED},
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


def breaker_rows(tx: Tx, now: datetime) -> list[dict[str, Any]]:
    """One row for each stage that has ever had a systemic failure or was opened by hand."""
    return [_breaker_row(f"{p}.{s}", breaker, now) for (p, s), breaker in breakers.load_all(tx).items()]


def _breaker_row(stage: str, breaker: Any, now: datetime) -> dict[str, Any]:
    return {
        "stage": stage,
        "state": breaker.state,
        "gate": gate(breaker, now),
        "failures": len(breaker.failures),
        "opened_at": breaker.opened_at,
        "probe_at": breaker.probe_at,
        "reason": breaker.reason,
    }


def hold_rows(tx: Tx, conditions: Conditions, now: datetime) -> list[dict[str, Any]]:
    """Holds in force: those set by command or form, and those of the Variable ``relay_hold``."""
    by_hand = {row["scope"]: dict(row) for row in reports.open_holds(tx, now)}
    of_variable = {
        scope: {"scope": scope, "reason": reason, "until": None, "set_by": "Variable relay_hold"}
        for scope, reason in conditions.holds.items()
        if scope not in by_hand
    }
    return [*by_hand.values(), *of_variable.values()]

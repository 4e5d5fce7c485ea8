"""``airflow relay status``: what goes on in all pipelines, on one screen."""

from __future__ import annotations

import argparse

from airflow_relay.cli import breakers, holds, output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import command, known_conditions, open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.operations.overview import UNFINISHED, overview

_STAGE_COLUMNS = (
    "stage",
    *(state.value for state in UNFINISHED),
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
    document = overview(ledger, conditions, now, args.period)
    titles = {
        "pipelines": ("Pipelines", ("pipeline", "class", "stages", "in_progress", "done", "discarded")),
        "stages": ("Stages", _STAGE_COLUMNS),
        "capacity": ("Capacity", ("key", "used", "limit")),
        "adaptive": ("Adaptive limits", ("key", "limit", "min", "max", "changed_at", "why")),
        "breakers": ("Breakers", breakers.COLUMNS),
        "holds": ("Holds", holds.COLUMNS),
        "intakes": ("Intake cycles", _INTAKE_COLUMNS),
        "heartbeats": ("Heartbeats", ("name", "status", "age", "sentence")),
        "alerts": ("Alerts that no channel has taken", ("waiting", "last_error")),
    }
    tables = [Table(title, columns, document[name]) for name, (title, columns) in titles.items()]
    output.write(args.output, document, *tables, empty="No pipeline is declared yet: run an intake.")
    return 0

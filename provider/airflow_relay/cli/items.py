"""``airflow relay items | show | log``: where each item is, and what happened to it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import check_pipeline, command, known_conditions, open_ledger, say
from airflow_relay.clock import utcnow
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import ItemState
from airflow_relay.ledger import dead_letters, items, job_sums, jobs, reports, results, runs
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.job_sums import UsageSum
from airflow_relay.ledger.jobs import Job, JobPhase
from airflow_relay.ledger.reports import Standing
from airflow_relay.ledger.results import PAYLOAD, Result

_ITEM_COLUMNS = ("item", "pipeline", "state", "stage", "status", "since", "for", "waits", "why")
_RUN_COLUMNS = (
    "grant",
    "stage",
    "visit",
    "state",
    "result",
    "outcome",
    "slot_wait",
    "trigger_latency",
    "duration",
    "error",
    "run_id",
)
_JOB_COLUMNS = ("stage", "visit", "task", "job", "phase", "kept", "tokens_in", "tokens_out", "cost", "error")


@command
def listing(args: argparse.Namespace) -> int:
    """``items``: state, stage, since when, and why it waits."""
    ledger, now = open_ledger(), utcnow()
    check_pipeline(ledger, args.pipeline)
    conditions = known_conditions(ledger, now)
    states = [ItemState(state) for state in args.state or ()]
    with ledger.read() as tx:
        found = items.listing(
            tx, pipeline=args.pipeline, states=states, stage=args.stage, limit=args.limit + 1
        )
        cut, found = len(found) > args.limit, found[: args.limit]
        standing = reports.standings(tx, found, conditions, now)
    rows = [_item_row(item, standing[item.id], now) for item in found]
    document = [{**row, "for": (now - row["since"]).total_seconds()} for row in rows]
    output.write(args.output, document, Table("", _ITEM_COLUMNS, rows), empty="No items.")
    if cut:
        say(f"Only the {args.limit} items of the latest activity are shown: raise --limit, or filter.")
    return 0


def _item_row(item: Item, standing: Standing, now: datetime) -> dict[str, Any]:
    return {
        "item": item.key,
        "pipeline": item.pipeline,
        "state": item.state,
        "stage": item.stage,
        "status": item.status,
        "since": standing.since,
        "for": now - standing.since,
        "waits": standing.reason,
        "why": standing.text,
    }


@command
def show(args: argparse.Namespace) -> int:
    """``show ITEM``: its runs with latency and durations, results, agent jobs and usage, dead letter."""
    ledger, now = open_ledger(), utcnow()
    conditions = known_conditions(ledger, now)
    with ledger.read() as tx:
        item = items.find(tx, args.item, args.pipeline)
        standing = reports.standings(tx, [item], conditions, now)[item.id]
        document = _dossier(tx, item, standing, now)
    tables = [
        Table("Item", ("what", "value"), [{"what": k, "value": v} for k, v in document["item"].items()]),
        Table("Runs", _RUN_COLUMNS, document["runs"]),
        Table("Results", ("stage", "visit", "outcome", "bytes", "at", "value"), document["results"]),
        Table("Agent jobs", _JOB_COLUMNS, document["jobs"]),
        Table("Usage", ("stage", "jobs", "tokens_in", "tokens_out", "cost"), document["usage"]),
        Table("Open dead letter", ("at", "stage", "error_class", "reason"), document["dead_letters"]),
    ]
    output.write(args.output, document, *tables, wide=True)
    return 0


def _dossier(tx: Tx, item: Item, standing: Standing, now: datetime) -> dict[str, Any]:
    of_jobs = jobs.of_item(tx, item.id)
    letters = [letter for letter in dead_letters.of_item(tx, item.id) if letter.is_open]
    return {
        "item": {
            **_item_row(item, standing, now),
            "class": item.klass,
            "priority": item.priority,
            "grant": item.epoch,
            "registered": item.registered_at,
            "finished": item.finished_at,
            "attempts_today": item.attempts,
            "error": item.error_class,
            "error_reason": item.error_reason,
        },
        "runs": [_run_row(run, now) for run in runs.of_item(tx, item.id)],
        "results": [_result_row(result) for result in results.of_item(tx, item.id)],
        "jobs": [_job_row(job) for job in of_jobs],
        "usage": _usage(of_jobs),
        "dead_letters": [
            {
                "at": letter.at,
                "stage": letter.stage,
                "error_class": letter.error_class,
                "reason": letter.reason,
                "trail": letter.trail,
            }
            for letter in letters
        ],
    }


def _run_row(run: Run, now: datetime) -> dict[str, Any]:
    end = run.closed_at or now
    return {
        "grant": run.epoch,
        "stage": run.stage,
        "visit": run.visit,
        "state": run.state,
        "result": run.result,
        "outcome": run.outcome,
        "slot_wait": None if run.ready_since is None else run.granted_at - run.ready_since,
        "trigger_latency": None if run.started_at is None else run.started_at - run.granted_at,
        "duration": None if run.started_at is None else end - run.started_at,
        "error": None if run.error_class is None else f"{run.error_class}: {run.error_reason or ''}",
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "granted_at": run.granted_at,
        "started_at": run.started_at,
        "closed_at": run.closed_at,
    }


def _result_row(result: Result) -> dict[str, Any]:
    return {
        "stage": "(payload)" if result.stage == PAYLOAD else result.stage,
        "visit": result.visit,
        "outcome": result.outcome,
        "bytes": result.size,
        "at": result.at,
        "value": result.value if result.ref is None else f"in the results folder: {result.ref}",
    }


def _job_row(job: Job) -> dict[str, Any]:
    return {
        "stage": job.stage,
        "visit": job.visit,
        "task": job.task_id if job.map_index < 0 else f"{job.task_id} [{job.map_index}]",
        "job": job.key if job.ref is None else str(job.ref.get("id")),
        "phase": job.phase,
        "kept": job.phase is JobPhase.SUCCEEDED and job.dropped_at is None,
        "tokens_in": job.input_tokens,
        "tokens_out": job.output_tokens,
        "cost": job.cost,
        "error": None if job.error_class is None else f"{job.error_class}: {job.error_reason or ''}",
        "intended_at": job.intended_at,
        "finished_at": job.finished_at,
    }


def _usage(of_item: Sequence[Job]) -> list[dict[str, Any]]:
    """Tokens and cost of an item's jobs by stage, and in total; failed and dropped ones are paid for too."""
    sums = job_sums.by_stage(of_item)
    rows = [_sum_row(stage, of_stage) for stage, of_stage in sums.items()]
    return [*rows, _sum_row("all stages", job_sums.total(of_item))] if len(rows) > 1 else rows


def _sum_row(stage: str, of_stage: UsageSum) -> dict[str, Any]:
    return {
        "stage": stage,
        "jobs": of_stage.jobs,
        "tokens_in": of_stage.input_tokens,
        "tokens_out": of_stage.output_tokens,
        "cost": str(of_stage.cost) if of_stage.cost else None,
    }


@command
def log(args: argparse.Namespace) -> int:
    """``log ITEM``: its activity, oldest first."""
    ledger = open_ledger()
    with ledger.read() as tx:
        item = items.find(tx, args.item, args.pipeline)
        events = items.log_of(tx, item.id)
    rows = [
        {
            "at": event.at,
            "kind": event.kind,
            "text": event.text,
            "grant": event.epoch,
            "detail": event.detail,
        }
        for event in events
    ]
    output.write(args.output, rows, Table("", ("at", "grant", "kind", "text"), rows), wide=True)
    return 0

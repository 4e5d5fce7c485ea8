"""``airflow relay tracks advise``: barrier settings from what earlier runs took."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import NEGATIVE, command, fail, open_ledger
from airflow_relay.core.advice import advise as propose
from airflow_relay.operations.tracks_advice import NoTracksRecordedError, recorded_runs


@command
def advise(args: argparse.Namespace) -> int:
    """``tracks advise DAG``; 1 when the ledger has no run of it."""
    try:
        found = recorded_runs(open_ledger(), args.dag_id, group=args.group, limit=args.runs)
    except NoTracksRecordedError as error:
        return fail(str(error), NEGATIVE)
    current = found.current
    advice = propose(found.durations, current=current)
    rows = [
        {
            "setting": name,
            "now": None if current is None else getattr(current, name),
            "advised": getattr(advice.settings, name),
        }
        for name in ("first_poll", "poll_interval", "ceiling")
    ]
    document = {
        "dag_id": args.dag_id,
        "runs": advice.runs,
        "settings": {row["setting"]: {"now": row["now"], "advised": row["advised"]} for row in rows},
        "ceiling_hits": advice.ceiling_hits,
        "budgets_wrong": advice.budgets_wrong,
        "tapped_by_track": dict(advice.tapped_by_track),
        "notes": list(advice.notes),
    }
    notes = [{"note": note} for note in advice.notes]
    output.write(
        args.output,
        document,
        Table(f"From {advice.runs} runs", ("setting", "now", "advised"), rows),
        Table("Notes", ("note",), notes),
    )
    return 0

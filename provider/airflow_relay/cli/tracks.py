"""``airflow relay tracks advise``: barrier settings from what earlier runs took."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import NEGATIVE, command, fail, open_ledger
from airflow_relay.core.advice import TrackDuration
from airflow_relay.core.advice import advise as propose
from airflow_relay.ledger import track_groups, tracks
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.track_groups import TrackGroup


@command
def advise(args: argparse.Namespace) -> int:
    """``tracks advise DAG``; 1 when the ledger has no run of it."""
    ledger = open_ledger()
    with ledger.read() as tx:
        groups = track_groups.of_dag(tx, args.dag_id, name=args.group, limit=args.runs)
        records = [record for group in groups for record in _records(tx, group)]
    if not groups:
        return fail(f"The ledger has no tracks that DAG {args.dag_id!r} dispatched.", NEGATIVE)
    current = next((s for g in groups if (s := track_groups.settings_of(g)) is not None), None)
    advice = propose(records, current=current)
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


def _records(tx: Tx, group: TrackGroup) -> Iterator[TrackDuration]:
    for row in tracks.of_group(tx, group.id):
        if row.is_final and row.finished_at is not None:
            yield TrackDuration(
                run=f"{group.run_id}#{group.id}",
                track=row.name,
                phase=row.phase,
                duration=row.finished_at - group.dispatched_at,
                reason=row.reason,
            )

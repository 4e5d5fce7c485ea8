"""``airflow relay clean --before TIME``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, command, open_ledger, say
from airflow_relay.cli.times import parse_moment
from airflow_relay.clock import utcnow
from airflow_relay.ledger import retention, track_groups
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.retention import Cleaned
from airflow_relay.ledger.store import Ledger


@command
def clean(args: argparse.Namespace) -> int:
    """Batch by batch; it may be stopped at any time and run again."""
    now = utcnow()
    try:
        before = parse_moment(args.before, now)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if before > now:
        raise UsageError(f"--before {args.before} is in the future.")
    ledger = open_ledger()
    row = _count(ledger, before) if args.dry_run else _clean(ledger, before, now, forget=args.forget_keys)
    output.write(args.output, row, Table("", tuple(row), [row]))
    return 0


def _count(ledger: Ledger, before: datetime) -> dict[str, int]:
    with ledger.read() as tx:
        return {
            "items_to_remove": retention.count_finished(tx, before),
            "track_groups_to_remove": track_groups.count_over(tx, before),
        }


def _clean(ledger: Ledger, before: datetime, now: datetime, *, forget: bool) -> dict[str, int]:
    removed = _batches(ledger, lambda tx, after: retention.remove_finished(tx, before, now, after=after))
    shortened = _batches(ledger, lambda tx, after: retention.shorten_logs(tx, before, after=after))
    with ledger.write() as tx:
        intakes = retention.remove_intakes(tx, before)
        groups = track_groups.remove_over(tx, before)
    row = {
        "items": removed.items,
        "events": removed.events + shortened.events,
        "snapshots": shortened.snapshots,
        "objects": len(removed.refs),
        "intakes": intakes,
        "track_groups": groups,
    }
    if forget:
        with ledger.write() as tx:
            row["keys"] = retention.forget_keys(tx, before)
    return row


def _batches(ledger: Ledger, batch: Callable[[Tx, int], Cleaned]) -> Cleaned:
    """Until there is no more; objects are deleted once nothing refers to them."""
    total, after = Cleaned(), 0
    while True:
        with ledger.write() as tx:
            done = batch(tx, after)
        if done.last is None:
            return total
        after = done.last
        deleted = tuple(ref for ref in done.refs if _delete(ledger, ref))
        total = Cleaned(
            items=total.items + done.items,
            events=total.events + done.events,
            snapshots=total.snapshots + done.snapshots,
            refs=total.refs + deleted,
        )


def _delete(ledger: Ledger, ref: str) -> bool:
    try:
        ledger.objects.delete(ref)
    except OSError as error:
        say(f"The large result {ref} could not be removed: {error}")
        return False
    return True

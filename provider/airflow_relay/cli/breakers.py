"""``airflow relay breakers [open | close] [PIPELINE.STAGE]``."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.interventions import tell
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, asker, check_pipeline, command, open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.operations import actions
from airflow_relay.operations.overview import breaker_rows

COLUMNS = ("stage", "state", "gate", "failures", "opened_at", "probe_at", "reason")


@command
def run(args: argparse.Namespace) -> int:
    """List, open or close."""
    pipeline, _, stage = (args.place or "").partition(".")
    if args.action != "list" and not (pipeline and stage):
        raise UsageError(f"breakers {args.action} needs a stage: PIPELINE.STAGE.")
    ledger, now = open_ledger(), utcnow()
    if args.action == "list":
        check_pipeline(ledger, pipeline or None)
        with ledger.read() as tx:
            found = [
                row
                for row in breaker_rows(tx, now)
                if args.place in (None, row["stage"], row["stage"].split(".")[0])
            ]
        output.write(args.output, found, Table("", COLUMNS, found), empty="All breakers are closed.")
        return 0
    act = actions.open_breaker if args.action == "open" else actions.close_breaker
    result = act(ledger, pipeline, stage, reason=args.reason, by=asker(), now=now)
    return tell(args.output, result, readies=args.action == "close")

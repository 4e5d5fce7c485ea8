"""``airflow relay clean --before TIME``."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, command, open_ledger, say
from airflow_relay.cli.times import parse_moment
from airflow_relay.clock import utcnow
from airflow_relay.operations import cleaning


@command
def clean(args: argparse.Namespace) -> int:
    """Remove what is older, or count it."""
    now = utcnow()
    try:
        before = parse_moment(args.before, now)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if before > now:
        raise UsageError(f"--before {args.before} is in the future.")
    ledger = open_ledger()
    if args.dry_run:
        row = cleaning.count(ledger, before)
    else:
        row = cleaning.clean(ledger, before, now, forget_keys=args.forget_keys, tell=say)
    output.write(args.output, row, Table("", tuple(row), [row]))
    return 0

"""``airflow relay hold | release``: nothing of a class or pipeline is granted while it is held."""

from __future__ import annotations

import argparse
from datetime import datetime

from airflow_relay.cli import output
from airflow_relay.cli.interventions import tell
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, asker, command, known_conditions, open_ledger
from airflow_relay.cli.times import parse_moment
from airflow_relay.clock import utcnow
from airflow_relay.operations import actions
from airflow_relay.operations.overview import hold_rows

COLUMNS = ("scope", "reason", "until", "set_by")


@command
def hold(args: argparse.Namespace) -> int:
    """``hold SCOPE --reason …``; without a scope: the holds in force."""
    now = utcnow()
    until = _end(args, now)
    if args.scope is None and (args.reason or until):
        raise UsageError("What is to be held? Give a class (P2) or a pipeline.")
    if args.scope is not None and not args.reason.strip():
        raise UsageError(f"Say why {args.scope} is held: --reason is shown beside everything that waits.")
    ledger = open_ledger()
    if args.scope is None:
        conditions = known_conditions(ledger, now)
        with ledger.read() as tx:
            found = hold_rows(tx, conditions, now)
        output.write(args.output, found, Table("", COLUMNS, found), empty="Nothing is held.")
        return 0
    result = actions.hold(ledger, args.scope, reason=args.reason, by=asker(), now=now, until=until)
    return tell(args.output, result, readies=False)


def _end(args: argparse.Namespace, now: datetime) -> datetime | None:
    if args.span is not None and args.until is not None:
        raise UsageError("Give --for or --until, not both.")
    if args.span is not None:
        end: datetime = now + args.span
        return end
    try:
        return None if args.until is None else parse_moment(args.until, now)
    except ValueError as error:
        raise UsageError(str(error)) from error


@command
def release(args: argparse.Namespace) -> int:
    """``release SCOPE``; 1 when it was not held by command or form."""
    result = actions.release(open_ledger(), args.scope)
    return tell(args.output, result) or (0 if result.changed else 1)

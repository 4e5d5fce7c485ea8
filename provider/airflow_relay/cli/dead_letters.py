"""``airflow relay dead-letters [list | redrive | skip | discard]``, one by one or in bulk by filters."""

from __future__ import annotations

import argparse
from dataclasses import fields
from datetime import datetime
from typing import Any

from airflow_relay.cli import output
from airflow_relay.cli.interventions import tell
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, asker, check_pipeline, command, open_ledger, say
from airflow_relay.cli.times import parse_moment
from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass
from airflow_relay.ledger import dead_letters
from airflow_relay.ledger.dead_letters import DeadLetter, LetterFilter
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations import actions

_COLUMNS = ("item", "pipeline", "stage", "error_class", "at", "for", "reason")
_DECIDED = (*_COLUMNS, "resolution", "resolved_by", "resolved_at")


@command
def run(args: argparse.Namespace) -> int:
    """List, or decide about all letters that the filters match."""
    now = utcnow()
    where = _filter(args, now)
    if args.action != "list":
        _refuse_stray(args)
        if not args.all and not any(getattr(where, f.name) is not None for f in fields(where)):
            raise UsageError(
                f"dead-letters {args.action} would {args.action} every dead letter: name items with --item, "
                "filter, or say --all."
            )
    ledger = open_ledger()
    check_pipeline(ledger, args.pipeline)
    if args.action == "list":
        return _list(args, ledger, where, now)
    by = asker()
    if args.action == "redrive":
        result = actions.redrive_letters(ledger, where, by=by, now=now, stage=args.to_stage, fresh=args.fresh)
    elif args.action == "skip":
        result = actions.skip_letters(ledger, where, by=by, now=now, outcome=args.outcome)
    else:
        result = actions.discard_letters(ledger, where, by=by, now=now, reason=args.reason)
    return tell(args.output, result, readies=args.action != "discard")


_USED_BY = {"to_stage": "redrive", "fresh": "redrive", "outcome": "skip", "reason": "discard"}


def _refuse_stray(args: argparse.Namespace) -> None:
    """An option that the action would ignore was meant to matter."""
    for name, action in _USED_BY.items():
        if getattr(args, name) and args.action != action:
            raise UsageError(
                f"--{name.replace('_', '-')} belongs to dead-letters {action}, not {args.action}."
            )


def _filter(args: argparse.Namespace, now: datetime) -> LetterFilter:
    try:
        since = None if args.since is None else parse_moment(args.since, now)
        before = None if args.before is None else parse_moment(args.before, now)
    except ValueError as error:
        raise UsageError(str(error)) from error
    classes = [error_class.value for error_class in ErrorClass]
    if args.error_class not in (None, *classes):
        raise UsageError(f"--error-class {args.error_class}: give one of {', '.join(classes)}.")
    return LetterFilter(
        pipeline=args.pipeline,
        stage=args.stage,
        error_class=args.error_class,
        since=since,
        before=before,
        keys=args.item or None,
    )


def _list(args: argparse.Namespace, ledger: Ledger, where: LetterFilter, now: datetime) -> int:
    with ledger.read() as tx:
        found = dead_letters.listing(tx, where, resolved=args.resolved, limit=args.limit + 1)
        counts = dead_letters.counts(tx, where)
    cut, found = len(found) > args.limit, found[: args.limit]
    rows = [_row(letter, now) for letter in found]
    columns = _DECIDED if args.resolved else _COLUMNS
    output.write(args.output, rows, Table("", columns, rows), empty="No dead letters.", wide=True)
    if cut:
        say(f"Only {args.limit} of {sum(counts.values())} open letters are shown: filter, or raise --limit.")
    return 0


def _row(letter: DeadLetter, now: datetime) -> dict[str, Any]:
    return {
        "item": letter.key,
        "pipeline": letter.pipeline,
        "stage": letter.stage,
        "error_class": letter.error_class,
        "at": letter.at,
        "for": (letter.resolved_at or now) - letter.at,
        "reason": letter.reason,
        "resolution": letter.resolution,
        "resolved_by": letter.resolved_by,
        "resolved_at": letter.resolved_at,
        "trail": letter.trail,
    }

"""``airflow relay init``: create or upgrade the ledger."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import command, open_ledger, shown_url


@command
def init(args: argparse.Namespace) -> int:
    """``init``: safe to run again, and from several places at once."""
    from airflow_relay.ledger import migrate  # noqa: PLC0415 - Alembic takes a moment

    ledger = open_ledger(check=False)
    identity = ledger.init()
    row = {"ledger": shown_url(ledger.url), "identity": identity, "schema": migrate.head_revision()}
    output.write(args.output, row, Table("", tuple(row), [row]))
    return 0

"""``airflow relay classify-errors``: JSON lines in, one verdict a line out. Needs no ledger."""

from __future__ import annotations

import argparse
import json
import sys

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import UsageError, command
from airflow_relay.clock import utcnow
from airflow_relay.core.errors import classify_line

_COLUMNS = ("error_class", "retryable", "retry_after", "reason")


@command
def classify(args: argparse.Namespace) -> int:
    """Read ``{status, headers, body, exception}`` a line from stdin."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "classify-errors reads JSON lines on stdin, as in: "
            "echo '{\"status\": 429}' | airflow relay classify-errors"
        )
    stream = sys.stdin
    stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    verdicts = (classify_line(line, now=utcnow()) for line in stream if line.strip())
    if args.output == "json":
        for verdict in verdicts:
            output.print_lines([json.dumps(verdict, ensure_ascii=True)])
        return 0
    output.write(args.output, None, Table("", _COLUMNS, list(verdicts)), empty="Nothing on stdin.")
    return 0

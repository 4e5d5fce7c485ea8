"""``airflow relay check-recovery``: for a system's own cron. Watches the watcher from outside of Airflow."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import command, fail, open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.operations.health import check_recovery


@command
def check(args: argparse.Namespace) -> int:
    """0 when sweep and tick are as young as they should be, 1 when not, 2 when nobody can say."""
    report = check_recovery(open_ledger, now=utcnow(), max_age=args.max_age)
    rows = [
        {"what": w.name, "status": w.health, "age": w.age, "sentence": w.sentence} for w in report.watched
    ]
    document = {**report.to_json(), "sentence": report.sentence}
    output.write(args.output, document, Table("", ("what", "status", "age", "sentence"), rows), empty="")
    return report.exit_code and fail(report.sentence, report.exit_code)

"""``airflow relay doctor``: whether this deployment can work, on one screen."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import NEGATIVE, command, open_ledger, say
from airflow_relay.clock import utcnow
from airflow_relay.operations import doctor as facts
from airflow_relay.operations.doctor_checks import Grade


@command
def doctor(args: argparse.Namespace) -> int:
    """Each problem with its cure; 1 when there is any."""
    findings = list(facts.examine(open_ledger, utcnow()))
    rows = [
        {"area": f.area, "grade": f.grade, "finding": f.text, "cure": f.cure}
        for f in sorted(findings, key=lambda f: list(Grade).index(f.grade), reverse=True)
    ]
    output.write(args.output, rows, Table("", ("grade", "area", "finding", "cure"), rows), wide=True)
    bad = sum(finding.grade is Grade.PROBLEM for finding in findings)
    say(f"Problems: {bad}." if bad else "No problems.")
    return NEGATIVE if bad else 0

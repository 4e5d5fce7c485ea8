"""``airflow relay agent-server``: the embedded reference agent server. Needs no ledger."""

from __future__ import annotations

import argparse

from airflow_relay.cli.session import command
from airflow_relay.local_agent import command as server


@command
def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    return server.run(args)

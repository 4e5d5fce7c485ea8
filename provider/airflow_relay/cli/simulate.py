"""``airflow relay simulate``: the digital twin."""

from __future__ import annotations

import argparse

from airflow_relay.cli.session import command
from airflow_relay.simulation import command as twin


@command
def run(args: argparse.Namespace) -> int:
    """Simulate, and tell what would happen."""
    return twin.run(args)

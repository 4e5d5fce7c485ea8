"""``python -m airflow_relay.local_agent``: the agent server without Airflow's command line."""

from __future__ import annotations

import argparse
import sys

from airflow_relay.local_agent.command import add_arguments, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_relay.local_agent",
        description="Serve the Responses API in background mode with a local, offline backend.",
    )
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

"""``airflow relay simulate``: the digital twin on the command line. Light to import."""

from __future__ import annotations

import argparse
import sys
from typing import Final

OK: Final = 0
NEGATIVE: Final = 1
USAGE_ERROR: Final = 2

EXAMPLES: Final = (
    "Examples: `airflow relay simulate content -o html` shows the first source document before and after; "
    "`airflow relay simulate --from-ledger --limit newsroom.critique=2` compares your last 30 days with "
    "another limit and names the bottleneck; `airflow relay simulate mine.yaml --outage draft=6h` tries a "
    "scenario of your own. How to write one: docs/simulation.md."
)

FORMS: Final = ("table", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments, and examples of them."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "scenario",
        nargs="?",
        metavar="SCENARIO",
        help="a scenario file (YAML), or one of those that come with Relay: content, bad_day, doom_spiral, "
        "newsroom, overnight",
    )
    parser.add_argument(
        "--days", type=_positive, help="simulated days of a run (default: as the scenario says)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=_positive, help="runs with different chance (default: as the scenario says)"
    )
    parser.add_argument(
        "-o", "--output", choices=FORMS, default="table", help="form of the answer (default: %(default)s)"
    )
    parser.add_argument(
        "--to", metavar="FILE", help="write there instead of stdout (html default: relay-SCENARIO.html)"
    )
    parser.add_argument(
        "--from-ledger",
        action="store_true",
        help="fit stage times, failures and arrivals to what the ledger has recorded, instead of a scenario",
    )
    parser.add_argument("-p", "--pipeline", help="with --from-ledger: only this pipeline")
    parser.add_argument(
        "--history-days",
        type=_positive,
        default=30,
        help="with --from-ledger: how far back (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="KEY=N",
        help="compare with this limit; may be repeated",
    )
    parser.add_argument(
        "--schedule",
        action="append",
        default=[],
        metavar="STAGE=CRON",
        help="compare with this entry schedule",
    )
    parser.add_argument(
        "--outage", action="append", default=[], metavar="STAGE=6h", help="compare with this stage being down"
    )
    parser.add_argument(
        "--results",
        metavar="FOLDER",
        help="run every scenario that comes with Relay, and write the table of the documents' numbers into "
        "FOLDER/results.md and all figures and inputs to FOLDER/results-twin.md",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Simulate and answer. Exit code 2 for a wrong scenario or option, told on stderr."""
    try:
        import simpy  # noqa: F401, PLC0415 - only asked for, so that its absence is told with the cure
        import yaml  # noqa: F401, PLC0415 - as above
    except ModuleNotFoundError as error:
        return _fail(f"The simulation needs {error.name}: pip install 'airflow-provider-relay[simulation]'")
    from airflow_relay.simulation import answers  # noqa: PLC0415 - loads simpy and pydantic

    try:
        return answers.answer(args)
    except answers.PROBLEMS as error:
        return _fail(str(error))


def _fail(reason: str) -> int:
    sys.stderr.write(f"airflow relay simulate: {reason}\n")
    return USAGE_ERROR


def main(arguments: list[str] | None = None) -> int:
    """The command by itself: ``python -m airflow_relay.simulation``."""
    parser = argparse.ArgumentParser(prog="airflow relay simulate", description="Simulate a pipeline.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))

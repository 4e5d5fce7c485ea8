"""The commands under ``airflow relay``, as Airflow's command line wants them told. Loads none of them."""

from __future__ import annotations

import argparse
from typing import Any, Final

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_relay.core.states import ItemState

_STATES: Final = tuple(state.value for state in ItemState)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _arg(*flags: str, **kwargs: Any) -> Arg:
    return Arg(flags, **kwargs)  # type: ignore[no-untyped-call]


OUTPUT = _arg(
    "-o",
    "--output",
    choices=("table", "plain", "json"),
    default="table",
    help="table for people, plain (tab-separated) for scripts, or json (default: table)",
)
ITEM = _arg("item", help="the item's key")
PIPELINE = _arg("-p", "--pipeline", help="the pipeline; needed where several have an item of this key")
IN_PIPELINE = _arg("-p", "--pipeline", help="only this pipeline")
AT_STAGE = _arg("-s", "--stage", help="only this stage")
LIMIT = _arg("--limit", type=_count, default=1000, help="at most so many rows (default: 1000)")
FRESH = _arg(
    "--fresh",
    action="store_true",
    help="ask the stage's agent jobs anew, instead of using their kept results: they are paid for again",
)
REASON = _arg("--reason", default="", help="why, for the log")

_ITEMS = (
    ActionCommand(
        name="items",
        help="Where each item is, since when, and why it waits",
        func=lazy_load_command("airflow_relay.cli.items.listing"),
        args=(
            IN_PIPELINE,
            AT_STAGE,
            _arg("--state", action="append", choices=_STATES, help="only items in this state; repeatable"),
            LIMIT,
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="show",
        help="One item: runs with trigger latency and durations, results, agent jobs and their usage",
        func=lazy_load_command("airflow_relay.cli.items.show"),
        args=(ITEM, PIPELINE, OUTPUT),
    ),
    ActionCommand(
        name="log",
        help="What happened to an item, in time order",
        func=lazy_load_command("airflow_relay.cli.items.log"),
        args=(ITEM, PIPELINE, OUTPUT),
    ),
)

_LEDGER = (
    ActionCommand(
        name="init",
        help="Create the ledger's tables, or upgrade them",
        func=lazy_load_command("airflow_relay.cli.ledger.init"),
        args=(OUTPUT,),
    ),
)


def get_relay_commands() -> list[CLICommand]:
    """What ``airflow`` adds to its commands."""
    return [
        GroupCommand(
            name="relay",
            help="Items, dead letters, breakers and health of Relay's pipelines",
            subcommands=(*_LEDGER, *_ITEMS),
        )
    ]

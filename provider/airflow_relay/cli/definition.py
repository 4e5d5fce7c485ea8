"""The commands under ``airflow relay``, as Airflow's command line wants them told. Loads none of them."""

from __future__ import annotations

import argparse
import importlib
from datetime import timedelta
from typing import Any, Final

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

from airflow_relay.cli.times import parse_span
from airflow_relay.core.states import ItemState

_STATES: Final = tuple(state.value for state in ItemState)


_MOST_ROWS: Final = 1_000_000


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from 1 to {_MOST_ROWS}")
    return int(text)


def _arg(*flags: str, **kwargs: Any) -> Arg:
    return Arg(flags, **kwargs)  # type: ignore[no-untyped-call]


class _ArgumentsOf(Arg):
    """The arguments of a module that brings its own ``add_arguments(parser)``."""

    def __init__(self, module: str) -> None:
        super().__init__(("--",))  # type: ignore[no-untyped-call] # Airflow sorts arguments by their flag
        self._module = module

    def add_to_parser(self, parser: argparse.ArgumentParser) -> None:
        """Load the module, which is light, and let it add them."""
        importlib.import_module(self._module).add_arguments(parser)


_TIME: Final = "2026-08-01T06:00Z, 2026-08-01, 09:00 (today, UTC) or 2h (ago)"

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
ONLY_ITEMS = _arg("--item", action="append", metavar="ITEM", help="only this item; repeatable")
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

_DONE_BY_HAND = (
    ActionCommand(
        name="rewind",
        help="Send an item to a stage, whatever its state",
        func=lazy_load_command("airflow_relay.cli.interventions.rewind"),
        args=(ITEM, _arg("to_stage", metavar="stage", help="where it goes on"), PIPELINE, FRESH, OUTPUT),
    ),
    ActionCommand(
        name="discard",
        help="End an item for good",
        func=lazy_load_command("airflow_relay.cli.interventions.discard"),
        args=(ITEM, PIPELINE, REASON, OUTPUT),
    ),
    ActionCommand(
        name="move",
        help="Carry the unfinished items of a stage over to another, after a stage was renamed or removed",
        func=lazy_load_command("airflow_relay.cli.interventions.move"),
        args=(
            _arg("of_pipeline", metavar="pipeline", help="the pipeline"),
            _arg("from_stage", help="where they are"),
            _arg("to_stage", help="where they go"),
            ONLY_ITEMS,
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="drop-results",
        help="Drop the kept results of an item's agent jobs, so that its next runs pay for fresh ones",
        func=lazy_load_command("airflow_relay.cli.interventions.drop_results"),
        args=(ITEM, PIPELINE, AT_STAGE, _arg("--task", help="only this task"), OUTPUT),
    ),
    ActionCommand(
        name="dead-letters",
        help="Items that automation has given up on: list, redrive, skip their stage, discard",
        func=lazy_load_command("airflow_relay.cli.dead_letters.run"),
        args=(
            _arg(
                "action",
                nargs="?",
                choices=("list", "redrive", "skip", "discard"),
                default="list",
                help="what to do with those that the filters match (default: list)",
            ),
            IN_PIPELINE,
            AT_STAGE,
            ONLY_ITEMS,
            _arg("--error-class", help="only this class of error, such as auth"),
            _arg("--since", metavar="TIME", help=f"dead since then: {_TIME}"),
            _arg("--before", metavar="TIME", help="dead since before then"),
            _arg("--all", action="store_true", help="really all of them, without a filter"),
            _arg("--resolved", action="store_true", help="list those that were decided about"),
            _arg("--to-stage", help="redrive: begin at this stage instead of the one that failed"),
            FRESH,
            _arg("--outcome", help="skip: go on by the route of this outcome"),
            REASON,
            LIMIT,
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="breakers",
        help="Breakers of failing stages: list, open, close",
        func=lazy_load_command("airflow_relay.cli.breakers.run"),
        args=(
            _arg(
                "action",
                nargs="?",
                choices=("list", "open", "close"),
                default="list",
                help="what to do (default: list)",
            ),
            _arg("place", nargs="?", metavar="pipeline.stage", help="the stage"),
            REASON,
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="hold",
        help="Grant nothing of a class or pipeline for a while; without a scope, what is held",
        func=lazy_load_command("airflow_relay.cli.holds.hold"),
        args=(
            _arg("scope", nargs="?", help="a class (P0 to P3) or a pipeline"),
            REASON,
            _arg("--for", dest="span", type=parse_span, metavar="SPAN", help="ends after 20m, 3h, 1d"),
            _arg("--until", metavar="TIME", help="ends then: 2026-08-01T06:00Z or 09:00 (today, UTC)"),
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="release",
        help="End a hold",
        func=lazy_load_command("airflow_relay.cli.holds.release"),
        args=(_arg("scope", help="a class (P0 to P3) or a pipeline"), OUTPUT),
    ),
    ActionCommand(
        name="dispatch",
        help="Grant what may run now, and start it",
        func=lazy_load_command("airflow_relay.cli.dispatch.run"),
        args=(OUTPUT,),
    ),
)

_HEALTH = (
    ActionCommand(
        name="status",
        help="Work in progress, capacity, breakers, holds, intakes, dispatch success, heartbeats",
        func=lazy_load_command("airflow_relay.cli.status.status"),
        args=(
            _arg(
                "--period",
                type=parse_span,
                default=timedelta(days=1),
                metavar="SPAN",
                help="what the figures look back on (default: 1d)",
            ),
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="check-recovery",
        help="Whether sweep and tick still run: exit code 0, 1 (too old) or 2 (nobody can say)",
        func=lazy_load_command("airflow_relay.cli.watch.check"),
        args=(
            _arg(
                "--max-age",
                type=parse_span,
                metavar="SPAN",
                help="allowed age of the last sweep (default: 3h)",
            ),
            OUTPUT,
        ),
    ),
    ActionCommand(
        name="doctor",
        help="Whether this deployment can work: each problem with its cure; exit code 1 if there is any",
        func=lazy_load_command("airflow_relay.cli.doctor.doctor"),
        args=(OUTPUT,),
    ),
)

_LEDGER = (
    ActionCommand(
        name="init",
        help="Create the ledger's tables, or upgrade them",
        func=lazy_load_command("airflow_relay.cli.ledger.init"),
        args=(OUTPUT,),
    ),
    ActionCommand(
        name="clean",
        help="Remove old events and long finished items, in small transactions, while pipelines run",
        func=lazy_load_command("airflow_relay.cli.retention.clean"),
        args=(
            _arg("--before", required=True, metavar="TIME", help=f"what is older goes: {_TIME}"),
            _arg("--dry-run", action="store_true", help="count only"),
            _arg(
                "--forget-keys",
                action="store_true",
                help="forget the keys of items removed before then: an intake takes them for new work again",
            ),
            OUTPUT,
        ),
    ),
)

_TOOLS = (
    ActionCommand(
        name="classify-errors",
        help="Class of each error on stdin: JSON lines with status, headers, body, exception",
        func=lazy_load_command("airflow_relay.cli.errors.classify"),
        args=(
            _arg(
                "-o",
                "--output",
                choices=("json", "table", "plain"),
                default="json",
                help="json: one verdict a line (default: json)",
            ),
        ),
    ),
    ActionCommand(
        name="simulate",
        help="Play a scenario, or this deployment's own past, on the digital twin",
        func=lazy_load_command("airflow_relay.cli.simulate.run"),
        args=(_ArgumentsOf("airflow_relay.simulation.command"),),
    ),
    ActionCommand(
        name="agent-server",
        help="Run the embedded reference agent server",
        func=lazy_load_command("airflow_relay.cli.agent_server.run"),
        args=(_ArgumentsOf("airflow_relay.local_agent.command"),),
    ),
    GroupCommand(
        name="tracks",
        help="Parallel tracks and their barrier",
        subcommands=(
            ActionCommand(
                name="advise",
                help="Barrier settings from what earlier runs of a DAG took",
                func=lazy_load_command("airflow_relay.cli.tracks.advise"),
                args=(
                    _arg("dag_id", help="the DAG that dispatched the tracks"),
                    _arg("--group", help="only the groups of this name"),
                    _arg("--runs", type=_count, default=100, help="the latest runs (default: 100)"),
                    OUTPUT,
                ),
            ),
        ),
    ),
)


def get_relay_commands() -> list[CLICommand]:
    """What ``airflow`` adds to its commands."""
    return [
        GroupCommand(
            name="relay",
            help="Items, dead letters, breakers and health of Relay's pipelines",
            subcommands=(*_LEDGER, *_ITEMS, *_DONE_BY_HAND, *_HEALTH, *_TOOLS),
        )
    ]

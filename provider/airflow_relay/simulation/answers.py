"""What the command does: choose the scenario, simulate with a progress bar, write the answer."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from airflow_relay.core.pipeline import PipelineError
from airflow_relay.simulation import what_if
from airflow_relay.simulation.experiment import Progress, Result, simulate
from airflow_relay.simulation.history import HistoryError
from airflow_relay.simulation.report import chapter, figures, page, tables
from airflow_relay.simulation.scenario import Scenario
from airflow_relay.simulation.scenario_file import ScenarioFileError, load, shipped

PROBLEMS: Final = (
    ScenarioFileError,
    what_if.ChangeError,
    HistoryError,
    PipelineError,
    chapter.PageError,
    argparse.ArgumentTypeError,
)
"""Errors whose text is for people."""

_LONG_SECONDS: Final = 1.0
"""Only runs that take longer get a progress bar."""


def answer(args: argparse.Namespace) -> int:
    """Simulate what was asked for."""
    if args.results:
        with _progress(sum(len(load(n).models) * load(n).seeds for n in shipped())) as step:
            chapter.write(Path(args.results), step)
        return 0
    _check(args)
    changes = _changes(args)
    if args.from_ledger:
        from airflow_relay.simulation import from_ledger  # noqa: PLC0415 - loads Airflow and the ledger

        fitted = from_ledger.fit_history(days=args.history_days, pipeline=args.pipeline)
        scenario, notes = fitted.scenario, fitted.notes
    elif args.scenario is None:
        raise argparse.ArgumentTypeError(
            f"name a scenario: a file, --from-ledger, or one of {', '.join(shipped())}"
        )
    else:
        scenario, notes = load(args.scenario), ()
    compared = args.from_ledger or bool(changes)
    result = _compare(scenario, changes, args) if compared else _simulate(scenario, args)
    _tell(result, args, notes=notes, compared=compared)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what would be ignored or fail only after a long run."""
    if args.from_ledger and args.scenario is not None:
        raise argparse.ArgumentTypeError(
            f"give either the scenario {args.scenario!r} or --from-ledger: a history is a scenario of its own"
        )
    if args.pipeline is not None and not args.from_ledger:
        raise argparse.ArgumentTypeError("--pipeline chooses from a history: give --from-ledger as well")
    if args.to is not None and not Path(args.to).parent.is_dir():
        raise argparse.ArgumentTypeError(f"--to {args.to}: there is no folder {Path(args.to).parent}")


def _changes(args: argparse.Namespace) -> what_if.Changes:
    try:
        return what_if.Changes(
            limits=dict(map(what_if.parse_limit, args.limit)),
            schedules=dict(map(what_if.parse_schedule, args.schedule)),
            outages=dict(map(what_if.parse_outage, args.outage)),
        )
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _simulate(scenario: Scenario, args: argparse.Namespace) -> Result:
    seeds = args.seeds or scenario.seeds
    with _progress(len(scenario.models) * seeds) as step:
        return simulate(scenario, days=args.days, seed=args.seed, seeds=seeds, progress=step)


def _compare(scenario: Scenario, changes: what_if.Changes, args: argparse.Namespace) -> Result:
    seeds = args.seeds or scenario.seeds
    with _progress(seeds * (2 if changes else 1)) as step:
        return what_if.compare(
            scenario,
            changes,
            days=args.days or scenario.days,
            seed=args.seed,
            seeds=seeds,
            progress=step,
        )


def _tell(result: Result, args: argparse.Namespace, *, notes: tuple[str, ...], compared: bool) -> None:
    if args.output == "json":
        document = {**figures.as_json(result), "notes": list(notes)}
        if compared:
            document["bottleneck"] = {n: what_if.bottleneck(o) for n, o in result.outcomes.items()}
        _write(json.dumps(document, indent=2, ensure_ascii=False) + "\n", args.to)
    elif args.output == "html":
        path = args.to or f"relay-{result.scenario.name}.html"
        _write(page.render(result, notes), path)
        sys.stderr.write(f"Written to {path}\n")
    else:
        _write(tables.render(result, notes=notes, bottlenecks=compared), args.to)


def _write(text: str, path: str | None) -> None:
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


@contextmanager
def _progress(total: int) -> Iterator[Progress]:
    """A bar on stderr for runs that take long, on a terminal only; else nothing."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    done, began = 0, time.monotonic()

    def step() -> None:
        nonlocal done
        done += 1
        passed = time.monotonic() - began
        if passed < _LONG_SECONDS:
            return
        filled = round(30 * done / total)
        left = passed / done * (total - done)
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} runs, {left:.0f} s left ")
        sys.stderr.flush()

    try:
        yield step
    finally:
        if time.monotonic() - began >= _LONG_SECONDS:
            sys.stderr.write("\r\x1b[K")

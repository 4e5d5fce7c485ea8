"""What every command has in common: the ledger it works on, the hour, who asks, and how it ends.

Exit codes: 0, 1 for a negative answer (no such item, refused, a problem found), 2 for a usage or
environment problem. Errors go to stderr, and so does the line that names the ledger.
"""

from __future__ import annotations

import argparse
import functools
import getpass
import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import declarations, governing
from airflow_relay.ledger.errors import (
    LedgerError,
    RefusedActionError,
    UnknownItemError,
)
from airflow_relay.ledger.store import Ledger

NEGATIVE: Final = 1
USAGE: Final = 2

Command = Callable[[argparse.Namespace], "int | None"]


class UsageError(ValueError):
    """The command cannot do what its arguments ask; the text says what to give instead."""


def command(function: Command) -> Callable[[argparse.Namespace], None]:
    """Make a command of a function that returns its exit code (``None`` for 0)."""

    @functools.wraps(function)
    def run(args: argparse.Namespace) -> None:
        code = _run(function, args)
        if code:
            raise SystemExit(code)

    return run


def _run(function: Command, args: argparse.Namespace) -> int:
    try:
        return function(args) or 0
    except (UnknownItemError, RefusedActionError) as error:
        return fail(str(error), NEGATIVE)
    except (LedgerError, PipelineError, UsageError) as error:
        return fail(str(error), USAGE)
    except UnicodeEncodeError as error:
        # A lone surrogate is how Python reads a byte of an argument that is no text.
        return fail(f"{error.object!r} is no valid UTF-8: write it anew.", USAGE)
    except SQLAlchemyError as error:
        # The ledger's own errors are among those above: this is Airflow's database.
        first = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        return fail(f"Airflow's database did not answer ({first}). Set it up: `airflow db migrate`.", USAGE)


def fail(message: str, code: int) -> int:
    """Write an error to stderr; returns the exit code."""
    sys.stderr.write(f"airflow relay: {message}\n")
    return code


def say(message: str) -> None:
    """Write a remark to stderr."""
    sys.stderr.write(f"{message}\n")


def open_ledger(*, check: bool = True) -> Ledger:
    """The deployment's ledger; stderr says which one that is.

    :param check: false for the commands that work on one without tables.
    :raises LedgerNotReadyError: it does not answer, or its schema is not this package's.
    """
    from airflow_relay.hooks import ledger as hook  # noqa: PLC0415 - loads Airflow's SDK

    logging.getLogger("alembic").setLevel(logging.WARNING)
    source = hook.ledger_source()
    ledger = hook.get_ledger()
    say(f"Ledger: {source}, {shown_url(ledger.url)}")
    if check:
        ledger.ledger_id  # noqa: B018 - reading it checks the schema
    return ledger


def check_pipeline(ledger: Ledger, name: str | None) -> None:
    """Refuse a filter that can match nothing.

    :raises UnknownPipelineError: no such pipeline; names those that there are.
    """
    if name is not None:
        with ledger.read() as tx:
            declarations.load(tx, name)


def known_conditions(ledger: Ledger, now: datetime) -> Conditions:
    """What Airflow knows, to explain with. Without its database only the ledger's own; stderr says so."""
    from airflow_relay import metadata  # noqa: PLC0415 - loads Airflow's models
    from airflow_relay.hooks.conditions import read_conditions  # noqa: PLC0415 - loads Airflow's SDK

    problem = metadata.why_unreachable()
    if problem is None:
        return read_conditions(ledger, now)
    say(
        f"Airflow's database does not answer ({problem}): limits and holds of Variables and paused DAGs are "
        "unknown here, so the reasons rest on the ledger alone."
    )
    with ledger.read() as tx:
        held = governing.holds(tx, now)
    return Conditions(holds={scope: hold.reason for scope, hold in held.items()})


def shown_url(url: str) -> str:
    """The ledger's address without its password, and without options, which may hold another one."""
    return make_url(url).set(query={}).render_as_string(hide_password=True)


def asker() -> str:
    """Who runs the command, for the log."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError, ImportError):
        return "somebody (command line)"

"""How commands write their answers: a table for people, plain lines for scripts, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import zip_longest
from typing import Any, Final

_WIDEST: Final = 72
"""Characters of a cell in a table; plain and JSON output is never cut."""


@dataclass(frozen=True)
class Table:
    """One table of an answer.

    :param title: above it, when an answer has several; empty for none.
    :param columns: names, in order; also the keys of a row.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


def write(form: str, document: Any, *tables: Table, empty: str = "Nothing.", wide: bool = False) -> None:
    """Write an answer to stdout.

    :param form: ``json``, ``table`` or ``plain``.
    :param document: what JSON output says; dataclasses, Enums and times are fine in it.
    :param tables: what the other forms say; tables without rows are left out.
    :param empty: what a table says when there are no rows at all.
    :param wide: long cells of a table go on in the next lines instead of being cut.
    """
    if form == "json":
        lines = [json.dumps(document, default=_jsonable, ensure_ascii=False, indent=2)]
    elif form == "plain":
        lines = [line for table in tables for line in _plain(table, titled=len(tables) > 1)]
    else:
        lines = [line for table in tables if table.rows for line in _drawn(table, wide=wide)] or [empty]
    print_lines(lines)


def print_lines(lines: Sequence[str]) -> None:
    """Write lines to stdout; a reader that has gone away (``| head``) is no error."""
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, AbstractSet):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def text(value: Any) -> str:
    """One cell: on one line, and with nothing in it that a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, timedelta):
        return span(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, default=_jsonable, ensure_ascii=False)
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else repr(c)[1:-1] for c in str(value))


def span(value: timedelta) -> str:
    """A span in its two largest units: ``3 h 20 min``, ``4.2 s``."""
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{span(-value)}"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


def _plain(table: Table, *, titled: bool) -> list[str]:
    head = [f"# {table.title}"] if titled and table.title else []
    rows = ["\t".join(text(row.get(c)) for c in table.columns) for row in table.rows]
    return [*head, "\t".join(table.columns), *rows]


def _drawn(table: Table, *, wide: bool) -> list[str]:
    whole = [[text(row.get(c)) for c in table.columns] for row in table.rows]
    cells = [line for row in whole for line in (_wrapped(row) if wide else [[_cut(c) for c in row]])]
    shown = [i for i in range(len(table.columns)) if any(row[i] for row in cells)]
    widths = {i: max(len(table.columns[i]), *(len(row[i]) for row in cells)) for i in shown}

    def line(values: Sequence[str]) -> str:
        return "  ".join(values[i].ljust(widths[i]) for i in shown).rstrip()

    head = ["", table.title] if table.title else []
    return [*head, line(table.columns), "  ".join("-" * widths[i] for i in shown), *map(line, cells)]


def _cut(cell: str) -> str:
    return cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…"


def _wrapped(row: Sequence[str]) -> list[list[str]]:
    columns = [textwrap.wrap(cell, _WIDEST) or [""] for cell in row]
    return [list(line) for line in zip_longest(*columns, fillvalue="")]

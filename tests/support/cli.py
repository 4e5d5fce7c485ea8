"""Runs ``airflow relay …`` in this process, through Airflow's own parser."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from airflow.cli import cli_parser


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def relay(*argv: str) -> Answer:
    """Parse and run one command."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            args = cli_parser.get_parser().parse_args(["relay", *argv])
            args.func(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Answer(code, out.getvalue(), err.getvalue())

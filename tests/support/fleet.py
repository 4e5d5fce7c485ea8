"""Several processes that take orders, one JSON line each, and may be killed at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

TESTS = Path(__file__).resolve().parent.parent


def serve(answer: Callable[[Any], Any]) -> None:
    """The child's side: answer each line of standard input with a line of standard output, to its end."""
    _say("ready")
    for line in sys.stdin:
        _say(answer(json.loads(line)))


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Member:
    """One child: ``python -m <module>``, started and not yet ready."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def tell(self, order: Any) -> None:
        self._to.write(json.dumps(order) + "\n")
        self._to.flush()

    def hear(self) -> Any:
        """The next line; ``None`` when the process has ended."""
        line = self._from.readline()
        return json.loads(line) if line.endswith("\n") else None

    def kill(self) -> None:
        """End it by SIGKILL if it runs, and close its pipes."""
        self.process.kill()
        self.process.wait()
        self._from.close()
        try:
            self._to.close()
        except BrokenPipeError:  # an order that it never read
            return


class Fleet:
    """Equal processes; a context manager that leaves none behind.

    :param module: what each runs; it calls :func:`serve`.
    """

    def __init__(self, size: int, module: str, *arguments: str) -> None:
        self._members = [Member(module, *arguments) for _ in range(size)]

    def __enter__(self) -> Self:
        for member in self._members:
            assert member.hear() == "ready", "a member did not start; its standard error says why"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.kill()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def all_at_once(self, order: Any) -> list[Any]:
        """Give each the same order before any answer is read; returns their answers."""
        for member in self._members:
            member.tell(order)
        return [member.hear() for member in self._members]

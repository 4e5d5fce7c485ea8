"""Waits for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitTimeoutError(AssertionError):
    """A condition did not come true in time; the text says which, and what was seen last."""


def wait_until(
    check: Callable[[], T | None],
    *,
    what: str,
    timeout: float = 60.0,
    interval: float = 0.1,
    explain: Callable[[], str] | None = None,
) -> T:
    """Call ``check`` until it returns something true, and return that.

    :param check: the condition; its exceptions are not caught.
    :param what: what is waited for, for the error text: "run x to finish".
    :param timeout: seconds after which :class:`WaitTimeoutError` is raised; ``check`` runs at least once.
    :param interval: seconds between two calls.
    :param explain: adds text to the error (the last lines of a log, say).
    """
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() >= deadline:
            detail = f"\n{explain()}" if explain else ""
            raise WaitTimeoutError(f"waited {timeout:.0f} s in vain for {what}; last seen: {value!r}{detail}")
        time.sleep(interval)

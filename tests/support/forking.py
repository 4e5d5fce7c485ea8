"""Children of a process that has imported everything already: they start at once and may be killed."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], None]


def fork(work: Work, *, errors: Path) -> int:
    """Run ``work`` in a child; returns its process id. What it raises goes to a file in ``errors``."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent reads it; nothing may run on in the child
        (errors / f"{os.getpid()}.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def kill(pid: int) -> bool:
    """End a child by SIGKILL and wait for it; false when it had ended by itself."""
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def has_ended(pid: int) -> bool:
    """Whether a child is gone; it is then forgotten."""
    return os.waitpid(pid, os.WNOHANG)[0] == pid

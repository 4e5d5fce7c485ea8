"""Ends a family of processes when whoever started it is gone.

``python reaper.py MARKER`` reads JSON lines from standard input until it closes, then sends SIGTERM to every
process that has MARKER in its environment, SIGKILL to those that are left after the grace period, and drops
the databases named before. ``{"detach": "yes"}`` makes it leave without doing so.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time

import psutil

MARKER = "RELAY_PROCESS_FAMILY"
GRACE_SECONDS = 3.0


def family(marker: str) -> list[psutil.Process]:
    """Every living process of this user with the marker in its environment."""
    return [process for process in psutil.process_iter() if _marker_of(process) == marker]


def _marker_of(process: psutil.Process) -> str | None:
    try:
        value: str | None = process.environ().get(MARKER)
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return None
    return value


def end_family(marker: str) -> int:
    """End all processes with the marker, and return how many there were at first."""
    members = family(marker)
    count = len(members)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + GRACE_SECONDS
        # A zombie has no environment any more, so it does not count as a member.
        while (members := family(marker)) and time.monotonic() < deadline:
            time.sleep(0.05)
    return count


def main() -> None:
    marker = sys.argv[1]
    databases: list[tuple[str, str]] = []
    for line in sys.stdin:
        message = json.loads(line)
        if "detach" in message:
            return
        databases.append((message["server_url"], message["drop"]))
    end_family(marker)
    if databases:
        from databases import drop_database

        for server_url, url in databases:
            drop_database(server_url, url)


if __name__ == "__main__":
    main()

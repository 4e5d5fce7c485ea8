"""The poll log as JSON lines in a file of any store that Airflow's ``ObjectStoragePath`` can write."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from airflow_relay.core.barrier import PollLogLine

log: Final = logging.getLogger(__name__)


def append_poll(path: str, line: PollLogLine) -> bool:
    """Append one line; returns false, and logs why, when the store refuses.

    The ledger has each poll before, so a store that is down stops no barrier. Stores without an append mode
    get the file written anew.
    """
    try:
        _append(path, (json.dumps(line) + "\n").encode())
    except Exception:
        log.exception("The poll could not be appended to %s; the ledger has it.", path)
        return False
    return True


def _append(path: str, data: bytes) -> None:
    from airflow.sdk import ObjectStoragePath  # noqa: PLC0415 - brings fsspec, which most barriers need not

    file: Any = ObjectStoragePath(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("ab") as stream:
            stream.write(data)
    except (NotImplementedError, ValueError):  # what fsspec says where there is no append mode
        known = file.read_bytes() if file.exists() else b""
        file.write_bytes(known + data)

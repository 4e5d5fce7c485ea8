"""The last lines of a run's task logs, where this machine has them: what a person wants to see first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from airflow.sdk.configuration import conf

from airflow_relay.core.completion import HAND_OFF_TASK_ID
from airflow_relay.core.errors.scrub import scrub

_TAIL_BYTES: Final = 64 * 1024
_LINE_LENGTH: Final = 300


def last_lines(dag_id: str, run_id: str, limit: int = 15) -> list[str]:
    """The end of the log that was written last in this run, the hand-off's aside; oldest line first.

    Logs that lie elsewhere (another machine, remote logging) are not found: an empty list. Secrets are
    replaced by ``***``.
    """
    folder = Path(conf.get("logging", "base_log_folder"), f"dag_id={dag_id}", f"run_id={run_id}")
    newest = max(_logs(folder), key=lambda file: file.stat().st_mtime, default=None)
    if newest is None:
        return []
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - _TAIL_BYTES))
        tail = file.read().decode("utf-8", "replace")
    return [_readable(line) for line in tail.splitlines()[-limit:]]


def _logs(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for file in folder.glob("task_id=*/**/attempt=*.log"):
            if not file.is_relative_to(folder / f"task_id={HAND_OFF_TASK_ID}"):
                yield file


def _readable(line: str) -> str:
    """A record of Airflow's JSON logs as text; any other line as it is."""
    try:
        record = json.loads(line)
    except ValueError:
        return scrub(line, _LINE_LENGTH)
    if not isinstance(record, dict):
        return scrub(line, _LINE_LENGTH)
    parts = [str(record.get("timestamp", "")), str(record.get("level", "")), str(record.get("event", ""))]
    details = record.get("error_detail")
    if isinstance(details, list) and details and isinstance(details[-1], dict):
        parts.append(f"{details[-1].get('exc_type')}: {details[-1].get('exc_value')}")
    return scrub(" ".join(part for part in parts if part), _LINE_LENGTH)

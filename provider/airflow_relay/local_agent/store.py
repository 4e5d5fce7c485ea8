"""Jobs in SQLite: in memory by default, in a file when the server is to know its jobs after a restart.

One process owns the store (a file is locked for its lifetime); every call is made from the event loop's
thread, so a read followed by a write needs no further lock.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from airflow_relay.local_agent.jobs import ACTIVE, TERMINAL, Job

if TYPE_CHECKING:
    from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT UNIQUE,
    status TEXT NOT NULL,
    record TEXT NOT NULL,
    request TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS job_status ON job (status, position);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""

_ACTIVE_VALUES = tuple(status.value for status in ACTIVE)
_TERMINAL_VALUES = tuple(status.value for status in TERMINAL)


class StateFileError(Exception):
    """The state file cannot be used; the text says why and what to do."""


class JobStore:
    """:param path: a file, created when absent, or None for memory.

    :param keep: how many finished jobs are kept; the oldest beyond that are forgotten, so that a server
        that runs for months stays bounded.
    :raises StateFileError: the file is no database, or another server holds it.
    """

    def __init__(self, path: str | None = None, *, keep: int = 100_000) -> None:
        self._keep = keep
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=2.0)
            if path:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StateFileError(
                f"the state file {path} cannot be used ({error}); "
                "stop the other server that has it open, or name another file with --state"
            ) from error

    def close(self) -> None:
        self._db.close()

    def add(self, job: Job, request: dict[str, Any]) -> None:
        """Record a new job and count it, in one transaction."""
        self._db.execute("BEGIN")
        try:
            self._db.execute(
                "INSERT INTO job (id, idempotency_key, status, record, request) VALUES (?, ?, ?, ?, ?)",
                (job.id, job.idempotency_key, job.status.value, _dump(job.to_record()), _dump(request)),
            )
            self._db.execute(
                "INSERT INTO counter (name, value) VALUES ('jobs_created', 1) "
                "ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def save(self, job: Job) -> None:
        self._db.execute(
            "UPDATE job SET status = ?, record = ? WHERE id = ?",
            (job.status.value, _dump(job.to_record()), job.id),
        )

    def get(self, job_id: str) -> Job | None:
        return self._one("SELECT record FROM job WHERE id = ?", job_id)

    def by_key(self, idempotency_key: str) -> Job | None:
        return self._one("SELECT record FROM job WHERE idempotency_key = ?", idempotency_key)

    def request(self, job_id: str) -> dict[str, Any]:
        """The request body as it was submitted."""
        row = self._db.execute("SELECT request FROM job WHERE id = ?", (job_id,)).fetchone()
        return json.loads(row[0]) if row else {}

    def delete(self, job_id: str) -> bool:
        return self._db.execute("DELETE FROM job WHERE id = ?", (job_id,)).rowcount > 0

    def unfinished(self) -> list[Job]:
        """Queued and running jobs, oldest first."""
        marks = ", ".join("?" * len(_ACTIVE_VALUES))
        rows = self._db.execute(
            f"SELECT record FROM job WHERE status IN ({marks}) ORDER BY position",  # noqa: S608 - marks only
            _ACTIVE_VALUES,
        )
        return [Job.from_record(json.loads(row[0])) for row in rows]

    def all(self) -> list[Job]:
        """Every job still known, oldest first."""
        rows = self._db.execute("SELECT record FROM job ORDER BY position")
        return [Job.from_record(json.loads(row[0])) for row in rows]

    def counts(self) -> dict[str, int]:
        """Jobs by status."""
        return dict(self._db.execute("SELECT status, COUNT(*) FROM job GROUP BY status").fetchall())

    def jobs_created(self) -> int:
        """Jobs ever created with this store, deleted and forgotten ones included."""
        row = self._db.execute("SELECT value FROM counter WHERE name = 'jobs_created'").fetchone()
        return int(row[0]) if row else 0

    def forget_oldest(self) -> None:
        """Drop finished jobs beyond the number to keep."""
        marks = ", ".join("?" * len(_TERMINAL_VALUES))
        self._db.execute(
            f"DELETE FROM job WHERE status IN ({marks}) AND position <= "  # noqa: S608 - marks only
            "(SELECT MAX(position) FROM job) - ?",
            (*_TERMINAL_VALUES, self._keep),
        )

    def _one(self, sql: str, value: str) -> Job | None:
        row = self._db.execute(sql, (value,)).fetchone()
        return Job.from_record(json.loads(row[0])) if row else None


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))

"""One SQLAlchemy engine a process and URL, made on first use: tasks fork, and a forked engine is not ours."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.util import LRUCache

from airflow_relay.ledger import batching
from airflow_relay.ledger.errors import LedgerNotReadyError, LedgerUnreachableError

BUSY_TIMEOUT_S: Final = 30
"""How long a SQLite connection waits for one that stands in no line: the ``sqlite3`` shell, a checkpoint."""

_SWITCH_PAUSE_S: Final = 0.02

_WRITE: Final = "relay_write"
_NO_RESULT: Final = {batching.WITH_NEXT: True}
_engines: dict[tuple[int, str], Engine] = {}


class _CompiledStatements(MutableMapping[Any, Any]):
    """SQLAlchemy's cache of compiled statements, but for all engines of a driver and not for one.

    A task process makes its engine anew, and would find an empty cache in it. What was compiled before the
    fork serves it (see :mod:`airflow_relay.ledger.rehearsal`). SQLAlchemy's keys begin with the dialect.
    """

    def __init__(self) -> None:
        self._kept: LRUCache[Any, Any] = LRUCache(1000)

    @staticmethod
    def _key(key: Any) -> Any:
        dialect, *rest = key
        return (dialect.name, dialect.driver, *rest)

    def __getitem__(self, key: Any) -> Any:
        return self._kept[self._key(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._kept[self._key(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self._kept[self._key(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        self._kept = LRUCache(1000)


COMPILED: Final = _CompiledStatements()
_SHARED_CACHE: Final = {"compiled_cache": COMPILED}


def engine_for(url: str) -> Engine:
    """Return this process's engine for ``url``.

    :raises LedgerNotReadyError: the URL is not one of SQLite or PostgreSQL, or its driver is missing.
    """
    key = (os.getpid(), url)
    if key not in _engines:
        _engines[key] = _create(url)
        batching.install(_engines[key])
    return _engines[key]


def dispose_engines() -> None:
    """Close this process's engines (tests, and commands that end)."""
    for pid, url in list(_engines):
        if pid == os.getpid():
            dispose_engine(url)


def dispose_engine(url: str) -> None:
    """Close this process's engine for ``url``."""
    _engines.pop((os.getpid(), url)).dispose()


def _create(url: str) -> Engine:
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _create_sqlite(parsed)
    if backend in ("postgresql", "postgres"):
        from airflow_relay.ledger import postgres  # noqa: PLC0415 - the other database's dialect is a long import

        try:
            return postgres.create(parsed, execution_options=_SHARED_CACHE)
        except ImportError as error:
            raise LedgerNotReadyError(
                "The PostgreSQL driver is missing: pip install 'airflow-provider-relay[postgres]'."
            ) from error
    raise LedgerNotReadyError(
        f"The ledger runs on SQLite or PostgreSQL, not on {backend!r}: see relay_ledger."
    )


def _create_sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        execution_options=_SHARED_CACHE,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's begin event below starts transactions
        cursor = connection.cursor()
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")  # a committed hand-off survives a power cut
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A deferred transaction that turns into a writer fails at once with "database is locked" when
        # another wrote in between; an immediate one waits its turn.
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _switch_to_wal(cursor: Any) -> None:
    """Use the write-ahead log.

    Only the first connection to a new file changes it. SQLite does not let those that come at the same moment
    wait for their turn, so they try again.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while not _switched(cursor, may_wait=time.monotonic() < deadline):
        time.sleep(_SWITCH_PAUSE_S)


def _switched(cursor: Any, *, may_wait: bool) -> bool:
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        if may_wait and "locked" in str(error):
            return False
        raise
    return True


@dataclass(frozen=True)
class Tx:
    """One transaction on the ledger."""

    conn: Connection
    ledger_id: str

    @property
    def is_sqlite(self) -> bool:
        return self.conn.dialect.name == "sqlite"

    def write(self, statement: Executable, values: Any = None) -> None:
        """Execute a statement whose result nobody reads; on PostgreSQL it goes along with the next one."""
        self.conn.execute(statement, values, execution_options=_NO_RESULT)


@contextmanager
def transaction(engine: Engine, *, write: bool) -> Iterator[Connection]:
    """One transaction, its errors as the driver raises them."""
    with _turn(engine) if write else nullcontext(), engine.connect() as raw:
        conn = raw.execution_options(**{_WRITE: write, batching.KEPT: []})
        with conn.begin():
            yield conn
            batching.send_kept(conn)


@contextmanager
def _turn(engine: Engine) -> Iterator[None]:
    """Stand in line for SQLite's only write lock.

    SQLite lets waiting writers ask again at growing intervals, so whoever has waited longest comes up least
    often, and the lock stays free meanwhile. The kernel wakes those who block in ``flock`` in the order in
    which they came, and takes the lock from a process that is killed. (A stricter order, in which nobody may
    take the lock again before the one woken for it, was measured as well: a seventh of the writes.)
    """
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name == ":memory:":
        yield
        return
    line = os.open(f"{name}.line", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(line, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(line, fcntl.LOCK_UN)  # a child that was forked in between would keep it otherwise
        os.close(line)


@contextmanager
def connected(url: str, *, write: bool) -> Iterator[Connection]:
    """A connection inside one transaction: committed at the end of the block, rolled back by an exception.

    :raises LedgerUnreachableError: the database does not answer, or no longer.
    :raises LedgerNotReadyError: the schema is missing.
    """
    try:
        with transaction(engine_for(url), write=write) as conn:
            yield conn
    except DBAPIError as error:
        if _missing_table(error):  # which is an OperationalError too on SQLite
            raise LedgerNotReadyError(
                f"The ledger {safe_url(url)} has no tables yet: run `airflow relay init`."
            ) from error
        if isinstance(error, OperationalError) or error.connection_invalidated:
            raise LedgerUnreachableError(
                f"The ledger {safe_url(url)} did not answer: {_first_line(error)}"
            ) from error
        raise


def _missing_table(error: DBAPIError) -> bool:
    text = str(error.orig)
    return "no such table" in text or type(error.orig).__name__ == "UndefinedTable"


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0]


def safe_url(url: str) -> str:
    """The URL without its password, for messages."""
    return make_url(url).render_as_string(hide_password=True)

"""SQLAlchemy's dialect for PostgreSQL by psycopg2, without the questions that a short process cannot afford.

Each task is a process, so each makes a connection of its own. SQLAlchemy asks a new one four questions and
pings an old one before each transaction, which together take longer than the guard's own statement.
"""

from __future__ import annotations

import select
import time
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine import URL

CONNECT_TIMEOUT_S: Final = 10
"""How long a connection to PostgreSQL may take."""

PING_AFTER_S: Final = 5.0
"""A connection that was idle for so long is asked whether it still answers, as another dialect asks each."""

_PLAIN: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg2"})
_LEAN: Final = "postgresql+relay"
_BY_LIBPQ: Final = frozenset({"relay", "psycopg2", "psycopg"})


class LeanDialect(PGDialect_psycopg2):
    """Reads what the server tells with every connection, and leaves out what the ledger does not use."""

    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call] # SQLAlchemy's
        self._returned: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def returned(self, dbapi_connection: Any, _record: Any) -> None:
        """A connection goes back into the pool (a ``checkin`` event)."""
        if dbapi_connection is not None:
            self._returned[dbapi_connection] = time.monotonic()

    def _get_server_version_info(self, connection: Connection) -> tuple[int, int]:
        number: int = connection.connection.dbapi_connection.server_version  # type: ignore[union-attr]
        return number // 10_000, number % 10_000

    def _set_backslash_escapes(self, connection: Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        self._backslash_escapes = driver.get_parameter_status("standard_conforming_strings") == "off"

    def _get_default_schema_name(self, connection: Connection) -> NoReturn:
        raise NotImplementedError  # which SQLAlchemy takes for "unknown": the ledger names no schema

    def get_default_isolation_level(self, dbapi_conn: Any) -> NoReturn:
        raise NotImplementedError  # as above: the ledger sets no level, so there is none to go back to

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Whether the server has not ended the connection.

        One that was used a moment ago is only looked at, without a round trip: a server that ends it says so.
        One that vanishes without a word says nothing, so an idle connection is pinged in full.
        """
        idle = time.monotonic() - self._returned.get(dbapi_connection, -PING_AFTER_S)
        if idle >= PING_AFTER_S or not hasattr(select, "poll"):  # which eventlet takes away
            return bool(super().do_ping(dbapi_connection))  # type: ignore[no-untyped-call] # SQLAlchemy's
        waiting = select.poll()
        waiting.register(dbapi_connection, select.POLLIN)
        return not waiting.poll(0)


registry.register("postgresql.relay", __name__, LeanDialect.__name__)


def create(url: URL, **options: Any) -> Engine:
    """An engine that connects when it is first used.

    :param url: with the plain driver, which becomes this dialect, or another one, which stays.
    :raises ImportError: the driver is missing.
    """
    if url.drivername in _PLAIN:
        url = url.set(drivername=_LEAN)
    if url.get_driver_name() in _BY_LIBPQ:
        options |= {"connect_args": _patience(url), "use_native_hstore": False}
    engine = create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=8, **options)
    if isinstance(engine.dialect, LeanDialect):
        event.listen(engine, "checkin", engine.dialect.returned)
    return engine


def _patience(url: URL) -> dict[str, int]:
    """How long a silent server is waited for; libpq's own answer is: for ever, or hours."""
    wanted = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
    return {name: value for name, value in wanted.items() if name not in url.query}

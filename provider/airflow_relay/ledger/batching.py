"""Writes that go along with the next statement: a hand-off has ten of which nobody reads the result.

On PostgreSQL each statement is a round trip, and a hand-off holds the dispatcher's lock during its own. So a
statement that is executed with :data:`WITH_NEXT` is only kept, its values filled in by the driver; the next
statement of the transaction that has a result, or its end, sends all of them in one string, in their order.
An error of such a write is raised there, which is still inside the transaction. SQLite runs in this process
and has no round trips: there each statement is executed at once.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, event

WITH_NEXT: Final = "relay_with_next"
"""Execution option of a statement whose result nobody reads, not even its row count."""

KEPT: Final = "relay_kept"
"""Execution option of a transaction's connection: a list of its own for what is kept."""


def install(engine: Engine) -> None:
    """Let an engine on psycopg2 keep writes. With another driver they are executed at once."""
    if engine.dialect.driver != "psycopg2":
        return

    @event.listens_for(engine, "do_execute")
    def _execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
        kept = _kept(context)
        if kept is None:
            return None
        if context.execution_options.get(WITH_NEXT):
            kept.append(cursor.mogrify(statement, parameters))
            return True
        if not kept:
            return None
        _send(cursor, kept, cursor.mogrify(statement, parameters))
        return True

    @event.listens_for(engine, "do_executemany")
    def _execute_many(cursor: Any, _statement: str, _parameters: Any, context: Any) -> None:
        _send(cursor, _kept(context))

    @event.listens_for(engine, "do_execute_no_params")
    def _execute_no_params(cursor: Any, _statement: str, context: Any) -> None:
        _send(cursor, _kept(context))


def send_kept(conn: Connection) -> None:
    """Send what is kept before the transaction ends."""
    if conn.get_execution_options().get(KEPT):
        conn.exec_driver_sql("SELECT 1")


def _kept(context: Any) -> list[bytes] | None:
    kept: list[bytes] | None = context.execution_options.get(KEPT)
    return kept


def _send(cursor: Any, kept: list[bytes] | None, last: bytes = b"") -> None:
    if not kept:
        return
    together = b";\n".join([*kept, last])
    kept.clear()
    cursor.execute(together)

"""Create or upgrade the schema. Safe when many processes start at once: one works, the others wait for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, select, text

from airflow_relay.ledger.engine import engine_for, transaction
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.ledger.schema import DISPATCHER_LOCK, VERSION_TABLE, meta

_ADVISORY_LOCK: Final = 7235917


def upgrade(url: str) -> str:
    """Bring the schema to this package's version and return the ledger's identity.

    :raises LedgerNotReadyError: the schema is newer than this package, or the database does not answer.
    """
    with _exclusive(url) as conn:
        _refuse_newer(conn)
        config = _config()
        config.attributes["connection"] = conn
        command.upgrade(config, "head")
        return _identity(conn)


def current_revision(url: str) -> str | None:
    """The schema's revision, or ``None`` for an empty database."""
    with engine_for(url).connect() as conn:
        return MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE}).get_current_revision()


def head_revision() -> str:
    """The revision that this package works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def is_current(url: str) -> bool:
    """Whether the schema is this package's."""
    return current_revision(url) == head_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _refuse_newer(conn: Connection) -> None:
    revision = MigrationContext.configure(conn, opts={"version_table": VERSION_TABLE}).get_current_revision()
    known = {s.revision for s in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise LedgerNotReadyError(
            f"The ledger's schema ({revision}) is newer than this package: "
            "upgrade airflow-provider-relay here."
        )


@contextmanager
def _exclusive(url: str) -> Iterator[Connection]:
    """A connection in one transaction that no other migration shares."""
    with transaction(engine_for(url), write=True) as conn:
        if conn.dialect.name == "postgresql":
            conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        yield conn


def _identity(conn: Connection) -> str:
    known = conn.execute(select(meta.c.value).where(meta.c.name == "ledger_id")).scalar()
    if known is None:
        known = str(uuid.uuid4())
        conn.execute(
            insert(meta),
            [{"name": "ledger_id", "value": known}, {"name": DISPATCHER_LOCK, "value": "the lock"}],
        )
    return known

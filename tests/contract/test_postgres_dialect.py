"""The ledger's dialect for PostgreSQL knows what the plain one asks for, and notices a connection's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine import make_url

from airflow_relay.ledger import postgres
from airflow_relay.ledger.store import Ledger
from polling import wait_until
from support.pipelines import MemoryObjects


@pytest.fixture
def engine(migrated_postgres: str) -> Iterator[Engine]:
    """An engine with the dialect, without a connection yet."""
    engine = postgres.create(make_url(migrated_postgres))
    yield engine
    engine.dispose()


@pytest.fixture
def sent(engine: Engine) -> list[str]:
    """What SQLAlchemy has the driver execute."""
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    return statements


def test_a_first_connection_asks_nothing(engine: Engine, sent: list[str]) -> None:
    with engine.connect() as conn:
        conn.exec_driver_sql("SELECT 7")
    assert sent == ["SELECT 7"]


@pytest.mark.parametrize("setting", ["on", "off"])
def test_it_knows_what_the_plain_dialect_asks_for(migrated_postgres: str, setting: str) -> None:
    url = make_url(migrated_postgres).update_query_dict(
        {"options": f"-c standard_conforming_strings={setting}"}
    )
    lean, plain = postgres.create(url), create_engine(url)
    for one in (lean, plain):
        with one.connect() as conn:
            conn.exec_driver_sql("SELECT 1")
        one.dispose()
    assert lean.dialect.server_version_info == plain.dialect.server_version_info
    assert lean.dialect._backslash_escapes == plain.dialect._backslash_escapes == (setting == "off")
    assert (lean.dialect.name, lean.dialect.driver) == (plain.dialect.name, plain.dialect.driver)


def test_a_connection_that_the_server_has_ended_is_replaced_before_it_is_used(
    migrated_postgres: str, engine: Engine
) -> None:
    with engine.connect() as conn:
        driver: Any = conn.connection.dbapi_connection
        pid = driver.info.backend_pid
    assert engine.dialect.do_ping(driver)
    other = create_engine(migrated_postgres)
    with other.connect() as conn:
        conn.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
    other.dispose()
    wait_until(lambda: not engine.dialect.do_ping(driver), what="the end to arrive", timeout=30)
    with engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT pg_backend_pid()").scalar() != pid


def test_a_connection_that_was_idle_is_asked_whether_it_answers(
    engine: Engine, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that vanished without a word looks well; only an answer tells."""
    asked: list[object] = []
    monkeypatch.setattr(PGDialect_psycopg2, "do_ping", lambda _, conn: asked.append(conn) or True)
    for _ in range(3):
        with engine.connect() as conn:
            conn.exec_driver_sql("SELECT 7")
    assert asked == []
    monkeypatch.setattr(postgres, "PING_AFTER_S", 0.0)
    with engine.connect() as conn:
        assert asked == [conn.connection.dbapi_connection]


def test_another_driver_that_is_asked_for_stays() -> None:
    try:
        engine = postgres.create(make_url("postgresql+psycopg://127.0.0.1/x"))
    except ImportError:
        pytest.skip("psycopg 3 is not installed")
    assert engine.dialect.driver == "psycopg"


def test_a_ledger_uses_it(migrated_postgres: str) -> None:
    with Ledger(migrated_postgres, MemoryObjects()).read() as tx:
        assert isinstance(tx.conn.dialect, postgres.LeanDialect)

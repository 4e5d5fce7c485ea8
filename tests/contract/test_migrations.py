"""The schema on both databases: what migrations build, many who start at once, and versions that differ."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import func, select, text, update

from airflow_relay.core.guard import GuardAction
from airflow_relay.ledger import schema
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.ledger.migrate import current_revision, head_revision, is_current, upgrade
from airflow_relay.ledger.store import Ledger
from support.fleet import Fleet
from support.pipelines import Driver, MemoryObjects, line

STARTERS = 8
ROUNDS = 3


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes URLs of databases without any table."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/{uuid.uuid4().hex}/ledger.db"
        return
    from databases import create_database, drop_database

    server = request.getfixturevalue("postgres_server")
    with ExitStack() as stack:

        def create() -> str:
            url = create_database(server, prefix="relay_migrations")
            stack.callback(drop_database, server, url)
            stack.callback(engine_for(url).dispose)
            return url

        yield create


def differences(url: str) -> list[object]:
    """What Alembic would still have to do to make the database equal to ``schema.metadata``."""
    with engine_for(url).connect() as conn:
        context = MigrationContext.configure(
            conn,
            opts={
                "version_table": schema.VERSION_TABLE,
                "compare_type": True,
                "compare_server_default": True,
            },
        )
        return compare_metadata(context, schema.metadata)


def test_the_migrations_build_exactly_the_declared_schema(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    assert differences(url) == []


@pytest.mark.parametrize(
    "drift",
    [
        "DROP INDEX ix_items_ready",
        "ALTER TABLE items ADD COLUMN extra TEXT",
        "DROP TABLE heartbeats",
    ],
)
def test_the_comparison_sees_a_drift(new_database: Callable[[], str], drift: str) -> None:
    url = new_database()
    upgrade(url)
    with engine_for(url).begin() as conn:
        conn.execute(text(drift))
    assert differences(url) != []


def test_many_who_start_at_once_build_one_schema_with_one_identity(
    new_database: Callable[[], str],
) -> None:
    with Fleet(STARTERS, "support.upgrading") as starters:
        for _ in range(ROUNDS):
            url = new_database()
            answers = starters.all_at_once(url)
            assert len(set(answers)) == 1, "\n".join(sorted(set(answers)))
            assert answers[0] == Ledger(url, MemoryObjects()).ledger_id
            with engine_for(url).connect() as conn:
                assert conn.execute(select(func.count()).select_from(schema.meta)).scalar() == 2


def test_the_identity_outlives_every_upgrade(new_database: Callable[[], str]) -> None:
    url = new_database()
    first = upgrade(url)
    assert uuid.UUID(first)
    assert upgrade(url) == first
    assert Ledger(url, MemoryObjects()).init() == first
    assert Ledger(url, MemoryObjects()).ledger_id == first
    assert upgrade(new_database()) != first


def test_the_package_knows_its_own_revision_without_alembic(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    assert schema.REVISION == head_revision() == current_revision(url)
    assert is_current(url)


def test_a_database_without_tables_names_the_command_that_makes_them(new_database: Callable[[], str]) -> None:
    url = new_database()
    assert current_revision(url) is None
    with pytest.raises(LedgerNotReadyError, match="no tables yet: run `airflow relay init`"):
        Ledger(url, MemoryObjects()).ledger_id  # noqa: B018 - reading it asks the database


def set_revision(url: str, revision: str) -> None:
    with engine_for(url).begin() as conn:
        conn.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = :new"), {"new": revision})


def test_a_newer_schema_is_refused_and_left_as_it_is(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    set_revision(url, "r9999")
    with pytest.raises(LedgerNotReadyError, match=r"\(r9999\) is newer than this package: upgrade"):
        upgrade(url)
    assert current_revision(url) == "r9999"


def test_nobody_works_on_a_schema_of_another_version(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    set_revision(url, "r9999")
    with (
        pytest.raises(LedgerNotReadyError, match=r"r9999, this package works with .*`airflow relay init`"),
        Ledger(url, MemoryObjects()).write(),
    ):
        raise AssertionError("the transaction must not begin")


def test_a_run_granted_by_another_ledger_is_refused_and_names_both(new_database: Callable[[], str]) -> None:
    url, other = new_database(), str(uuid.uuid4())
    ledger = Ledger(url, MemoryObjects())
    identity = ledger.init()
    drive = Driver(ledger, line())
    [run] = drive.intake("a")
    with engine_for(url).begin() as conn:
        conn.execute(update(schema.runs).values(ledger_id=other))
    before = drive.item("a")
    decision = drive.guard(run).decision
    assert decision.action is GuardAction.WRONG_LEDGER
    assert other in decision.reason
    assert identity in decision.reason
    assert drive.item("a") == before, "nothing was changed"
    assert drive.run(run).started_at is None

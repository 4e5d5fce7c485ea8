"""Play one item through a ledger in memory before Airflow forks, so that a task need not compile its SQL.

SQLAlchemy compiles a statement when it is executed first, which is most of the processor time that a short
task spends on the ledger: each task is a process of its own, and each would compile anew what its parent can
hand down. The rehearsal runs on SQLite and compiles each statement for PostgreSQL as well; it opens no file
and no connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import create_engine, event, insert
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.sql import ClauseElement

from airflow_relay.core.completion import Completion, StageShape
from airflow_relay.core.item import Run
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import governing, guarding, items, observations, ready, results, runs
from airflow_relay.ledger.engine import COMPILED, dispose_engine, engine_for
from airflow_relay.ledger.schema import DISPATCHER_LOCK, REVISION, VERSION_TABLE, meta, metadata, version
from airflow_relay.ledger.store import Ledger

_IN_MEMORY: Final = "sqlite://"
# A stage with a done-status and one without: the two update different columns of the item.
_LINE: Final = Pipeline(
    "rehearsal",
    [
        Stage("first", status="firsted", to="second", schedule="@daily"),
        Stage("second", to="third"),
        Stage("third", status="thirded", to=END),
    ],
)
_SHAPE: Final = StageShape(("work",), ("work",))


class _NoObjects:
    """A rehearsal's values are small enough for the ledger."""

    def write(self, name: str, data: bytes) -> str:
        raise AssertionError(f"a rehearsal stores no {name} of {len(data)} bytes")

    def read(self, ref: str) -> bytes:
        raise AssertionError(f"a rehearsal reads no {ref}")

    def delete(self, ref: str) -> None:
        raise AssertionError(f"a rehearsal deletes no {ref}")


def rehearse(now: datetime) -> None:
    """Compile what guard and hand-off execute, for both databases, into the cache that engines share."""
    engine = engine_for(_IN_MEMORY)
    try:
        _make_tables(engine)
        _compile_for_postgres(engine)
        _play(Ledger(_IN_MEMORY, _NoObjects()), now)
    finally:
        dispose_engine(_IN_MEMORY)


def _make_tables(engine: Engine) -> None:
    """As the migrations do; those are not imported here, since every task would inherit Alembic."""
    with engine.begin() as conn:
        metadata.create_all(conn)
        conn.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
        rows = [{"name": "ledger_id", "value": "rehearsal"}, {"name": DISPATCHER_LOCK, "value": ""}]
        conn.execute(insert(meta), rows)
        conn.execute(insert(version).values(version_num=REVISION))


def _compile_for_postgres(engine: Engine) -> None:
    try:
        postgres = create_engine("postgresql+psycopg2://").dialect
    except ImportError:
        return  # a deployment without the extra: its ledger is SQLite

    @event.listens_for(engine, "before_execute")
    def _compile(
        _conn: Connection,
        statement: ClauseElement,
        many: Sequence[Mapping[str, Any]],
        one: Mapping[str, Any],
        _options: Mapping[str, Any],
    ) -> None:
        _compile_into_cache(statement, postgres, many or [one])


def _compile_into_cache(
    statement: ClauseElement, dialect: Dialect, parameters: Sequence[Mapping[str, Any]]
) -> None:
    # No public way leads into the cache but executing. Without this method only the gain would be lost.
    compile_with_cache = getattr(statement, "_compile_w_cache", None)
    if compile_with_cache is not None:
        compile_with_cache(
            dialect,
            compiled_cache=COMPILED,
            column_keys=sorted(parameters[0]),
            for_executemany=len(parameters) > 1,
        )


def _play(ledger: Ledger, now: datetime) -> None:
    _, [first] = ledger.intake(_LINE, ["item"], Conditions(), now)
    waiting = [first]
    while waiting:
        waiting.extend(_run(ledger, waiting.pop(), now))


def _run(ledger: Ledger, run: Run, now: datetime) -> tuple[Run, ...]:
    """What the processes of one stage ask of the ledger, in their order."""
    ledger.confirm([run.id], now)
    ledger.ask_guard(
        dag_id=run.dag_id,
        run_id=run.run_id,
        clear_number=0,
        pipeline=_LINE,
        shape=_SHAPE,
        is_entry_dag=False,
        named_ledger=run.ledger_id,
        now=now,
    )
    ledger.find_run(run.dag_id, run.run_id)
    with ledger.read() as tx:
        guarding.look(tx, run.dag_id, run.run_id)
        results.of_item(tx, run.item_id)
        items.by_ids(tx, [run.item_id])
        ready.dags(tx)
        governing.holds(tx, now)
        observations.load(tx)
    done = ledger.hand_off(
        run,
        pipeline=_LINE,
        completion=Completion(RunResult.SUCCESS),
        stored=ledger.prepare("result", _LINE.name, "item", run.stage),
        clear_number=0,
        conditions=Conditions(),
        now=now,
    )
    ledger.unconfirmed(now)
    with ledger.read() as tx:
        runs.following(tx, run)
        runs.any_unconfirmed(tx, now)
    return done.grants

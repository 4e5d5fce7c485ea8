"""What the rehearsal compiles before Airflow forks is what a task's guard and hand-off execute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from airflow_relay.hooks.conditions import known_conditions
from airflow_relay.ledger import guarding, rehearsal
from airflow_relay.ledger.engine import COMPILED, engine_for
from support.pipelines import START


@contextmanager
def compiled_statements(engine: Engine) -> Iterator[list[str]]:
    """The statements that an engine compiles because it does not find them in the cache."""
    missed: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: Any) -> None:
        if context.compiled is not None and context.cache_hit is not context.dialect.CACHE_HIT:
            missed.append(statement)

    event.listen(engine, "after_cursor_execute", note)
    try:
        yield missed
    finally:
        event.remove(engine, "after_cursor_execute", note)


def play(drive: Any) -> None:
    first, *_ = drive.intake("a")
    drive.ledger.confirm([first.id], drive.now)
    drive.guard(first)
    with drive.ledger.read() as tx:
        found, _, _ = guarding.look(tx, first.dag_id, first.run_id)
        known_conditions(tx, drive.now)
    assert [g.stage for g in drive.end(found, value="text").grants] == ["second"]
    assert drive.ledger.unconfirmed(drive.now) == []


def test_a_stage_compiles_nothing_more(drive):
    assert drive.ledger.ledger_id
    COMPILED.clear()
    rehearsal.rehearse(START)
    with compiled_statements(engine_for(drive.ledger.url)) as missed:
        play(drive)
    # SQLite has no need of the row that PostgreSQL locks, so the rehearsal does not come by it.
    assert [s for s in missed if "FOR UPDATE" not in s or "meta" not in s] == []


def test_without_it_a_stage_compiles_all_of_its_statements(drive):
    assert drive.ledger.ledger_id
    COMPILED.clear()
    with compiled_statements(engine_for(drive.ledger.url)) as missed:
        play(drive)
    assert len(missed) > 15

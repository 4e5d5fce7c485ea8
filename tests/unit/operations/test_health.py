"""``check_recovery`` on a ledger: what CLI, watchdog and page ask."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow_relay.core.watch import SWEEP, TICK, Health
from airflow_relay.ledger import governing
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations.health import check_recovery
from support.pipelines import MemoryObjects


def beat(drive, name: str) -> None:
    with drive.ledger.write() as tx:
        governing.beat(tx, name, drive.now)


def test_the_age_of_the_last_sweep_decides(drive):
    drive.intake("a")
    drive.later(days=1)
    beat(drive, SWEEP)
    drive.later(hours=2)
    beat(drive, TICK)
    assert check_recovery(lambda: drive.ledger, now=drive.now).ok
    strict = check_recovery(lambda: drive.ledger, now=drive.now, max_age=timedelta(hours=1))
    assert (strict.exit_code, strict.health) == (1, Health.LATE)


def test_a_dead_tick_is_seen_although_the_sweep_comes(drive):
    drive.intake("a")
    beat(drive, TICK)
    drive.later(hours=1)
    beat(drive, SWEEP)
    found = check_recovery(lambda: drive.ledger, now=drive.now)
    assert "relay__dispatch" in found.sentence
    assert found.exit_code == 1


def test_an_empty_ledger_is_no_alarm(drive):
    assert check_recovery(lambda: drive.ledger, now=drive.now).ok


def test_a_ledger_without_tables_or_that_cannot_be_found_is_told_and_not_raised(tmp_path: Path, drive):
    empty = Ledger(f"sqlite:///{tmp_path}/empty.db", MemoryObjects())
    assert check_recovery(lambda: empty, now=drive.now).health is Health.UNREADABLE

    def unresolvable() -> Ledger:
        raise LedgerNotReadyError("The executor is CeleryExecutor: add a connection.")

    found = check_recovery(unresolvable, now=drive.now)
    assert found.exit_code == 2
    assert "add a connection" in found.sentence

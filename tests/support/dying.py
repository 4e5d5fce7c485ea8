"""Items that die, and their letters, for tests."""

from __future__ import annotations

from airflow_relay.core.item import Run
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import dead_letters
from airflow_relay.ledger.dead_letters import LetterFilter
from support.pipelines import Driver


def die(drive: Driver, run: Run, error: str = "auth") -> None:
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.end(run, result=RunResult.FAILED, error=error)


def dead(drive: Driver, *keys: str, error: str = "auth") -> list[Run]:
    granted = drive.intake(*(keys or ("a",)))
    for run in granted:
        die(drive, run, error)
    return granted


def open_letters(drive: Driver, where: LetterFilter | None = None) -> list[str]:
    with drive.ledger.read() as tx:
        return [letter.key for letter in dead_letters.listing(tx, where)]

"""What the tick does for dead letters: their last log lines, and at most 20 of them as open questions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.core.item import Run
from airflow_relay.hooks.task_logs import last_lines
from airflow_relay.ledger import dead_letters, runs
from airflow_relay.ledger.dead_letters import DeadLetter
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.trigger import plain_text

log: Final = logging.getLogger(__name__)

DEAD_LETTER_DAG_ID: Final = "relay__dead_letter"

LOGS_SINCE: Final = timedelta(days=1)
"""The log lines of older letters are not looked for: a restart must not read through the whole backlog."""


def ask_people(ledger: Ledger) -> int:
    """Keep at most 20 letters open as questions: the places of answered ones are filled.

    Returns how many were new.

    A question is asked by the run id of its letter, so asking again asks nothing.
    """
    with ledger.dispatcher() as tx:
        letters = dead_letters.offer(tx, utcnow())
    try:
        return sum(_ask(letter) for letter in letters)
    except compat.TargetDagError as error:
        log.warning("Dead letters cannot be put as questions: %s", error)
        return 0


def _ask(letter: DeadLetter) -> bool:
    where = f"{letter.pipeline}.{letter.stage}"
    return compat.trigger_dag_run(
        dag_id=DEAD_LETTER_DAG_ID,
        run_id=f"relay:letter:{letter.id}",
        conf={"letter": letter.id, "item_id": letter.key},
        note=f"Relay: dead letter of item **{plain_text(letter.key)}**, {where}",
    )


def keep_logs(ledger: Ledger) -> int:
    """Look for the last log lines of new letters, once each. Returns how many letters were looked at."""
    now = utcnow()
    with ledger.read() as tx:
        letters = dead_letters.without_log(tx, now - LOGS_SINCE)
        of_letter = {letter.id: runs.newest(tx, letter.item_id) for letter in letters}
    for letter in letters:
        lines = _lines_of(of_letter[letter.id])
        with ledger.write() as tx:
            dead_letters.add_log(tx, letter, lines, now)
    return len(letters)


def _lines_of(run: Run | None) -> list[str]:
    try:
        return [] if run is None else last_lines(run.dag_id, run.run_id)
    except OSError as error:
        return [scrub(f"the log cannot be read: {error}")]


def tend(ledger: Ledger) -> Mapping[str, int]:
    """What the tick does for dead letters: log lines, then questions."""
    try:
        return {"logs": keep_logs(ledger), "questions": ask_people(ledger)}
    except LedgerError:
        log.exception("Dead letters were not tended this time.")
        return {}

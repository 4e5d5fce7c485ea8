"""What the tick does for dead letters: their last log lines, and at most 20 of them as open questions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.completion import has_ended
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

ASK_AGAIN: Final = timedelta(hours=6)
"""Between two questions about one letter, when the first one is over without an answer."""

ASKED_AT_MOST: Final = 10

LOGS_SINCE: Final = timedelta(days=1)
"""The log lines of older letters are not looked for: a restart must not read through the whole backlog."""


def ask_people(ledger: Ledger) -> int:
    """Keep at most 20 letters open as questions: the places of answered ones are filled.

    Returns how many were new. A question is a run with an id of its letter's, so asking again asks nothing.
    One whose run is over without an answer (it failed, or somebody marked it) is asked anew by the next id,
    else it would keep its place for ever; but not at once and not without end, since it may fail again.
    """
    now = utcnow()
    with ledger.dispatcher() as tx:
        letters = dead_letters.offer(tx, now)
    asked, number = 0, 1
    try:
        while letters and number <= ASKED_AT_MOST:
            found = compat.task_states(DEAD_LETTER_DAG_ID, [_run_id(letter, number) for letter in letters])
            states = {letter.id: found.get(_run_id(letter, number)) for letter in letters}
            asked += sum(_ask(letter, number) for letter in letters if states[letter.id] is None)
            letters = [
                letter
                for letter in letters
                if has_ended(states[letter.id] or {}) and now >= _first_asked(letter) + number * ASK_AGAIN
            ]
            number += 1
    except compat.TargetDagError as error:
        log.warning("Dead letters cannot be put as questions: %s", error)
    return asked


def _first_asked(letter: DeadLetter) -> datetime:
    return letter.offered_at or letter.at


def _run_id(letter: DeadLetter, number: int) -> str:
    return f"relay:letter:{letter.id}" + (f":{number}" if number > 1 else "")


def _ask(letter: DeadLetter, number: int) -> bool:
    where = f"{letter.pipeline}.{letter.stage}"
    return compat.trigger_dag_run(
        dag_id=DEAD_LETTER_DAG_ID,
        run_id=_run_id(letter, number),
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

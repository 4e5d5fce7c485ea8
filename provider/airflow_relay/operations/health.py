"""Whether recovery works, for the watchdog, ``airflow relay check-recovery`` and ``GET /relay/health``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from airflow_relay.core.watch import MAX_AGE, SWEEP, Report, report, unreadable
from airflow_relay.ledger import governing, items
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger


def check_recovery(
    ledger: Callable[[], Ledger], *, now: datetime, max_age: timedelta | None = None
) -> Report:
    """Judge the heartbeats of sweep and tick. A ledger that cannot be read is a report of its own, no error.

    :param ledger: resolves the ledger (``get_ledger``): that alone may fail.
    :param now: aware UTC.
    :param max_age: allowed age of the last sweep; the tick keeps its own.
    :return: ``.ok``, ``.sentence`` for people, ``.exit_code`` and ``.http_status`` for machines.
    """
    limits = {**MAX_AGE, **({} if max_age is None else {SWEEP: max_age})}
    try:
        with ledger().read() as tx:
            beats = {name: governing.last_beat(tx, name) for name in limits}
            first_work = items.first_activity(tx)
    except (LedgerError, OSError) as error:
        return unreadable(str(error))
    return report(beats, now=now, max_age=limits, first_work=first_work)

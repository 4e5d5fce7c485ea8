"""Retention, batch by batch, for command line and form. It may be stopped at any time and run again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from airflow_relay.ledger import retention, track_groups
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.retention import Cleaned
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)


def count(ledger: Ledger, before: datetime) -> dict[str, int]:
    """What :func:`clean` would remove."""
    with ledger.read() as tx:
        return {
            "items_to_remove": retention.count_finished(tx, before),
            "track_groups_to_remove": track_groups.count_over(tx, before),
        }


def clean(
    ledger: Ledger,
    before: datetime,
    now: datetime,
    *,
    forget_keys: bool = False,
    tell: Callable[[str], None] = log.warning,
) -> dict[str, int]:
    """Remove items finished before then and old lines of the logs of those that stay. Returns the counts.

    :param forget_keys: an intake that finds a key removed before then takes it for new work.
    :param tell: hears of each large result that could not be deleted.
    """
    removed = _batches(
        ledger, lambda tx, after: retention.remove_finished(tx, before, now, after=after), tell
    )
    shortened = _batches(ledger, lambda tx, after: retention.shorten_logs(tx, before, after=after), tell)
    with ledger.write() as tx:
        intakes = retention.remove_intakes(tx, before)
        groups = track_groups.remove_over(tx, before)
    row = {
        "items": removed.items,
        "events": removed.events + shortened.events,
        "snapshots": shortened.snapshots,
        "objects": len(removed.refs),
        "intakes": intakes,
        "track_groups": groups,
    }
    if forget_keys:
        with ledger.write() as tx:
            row["keys"] = retention.forget_keys(tx, before)
    return row


def _batches(ledger: Ledger, batch: Callable[[Tx, int], Cleaned], tell: Callable[[str], None]) -> Cleaned:
    """Until there is no more; objects are deleted once nothing refers to them."""
    total, after = Cleaned(), 0
    while True:
        with ledger.write() as tx:
            done = batch(tx, after)
        if done.last is None:
            return total
        after = done.last
        deleted = tuple(ref for ref in done.refs if _delete(ledger, ref, tell))
        total = Cleaned(
            items=total.items + done.items,
            events=total.events + done.events,
            snapshots=total.snapshots + done.snapshots,
            refs=total.refs + deleted,
        )


def _delete(ledger: Ledger, ref: str, tell: Callable[[str], None]) -> bool:
    try:
        ledger.objects.delete(ref)
    except OSError as error:
        tell(f"The large result {ref} could not be removed: {error}")
        return False
    return True

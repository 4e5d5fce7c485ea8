"""Airflow's Variables and pause states, and a tick that reads them, for tests of the dispatcher."""

from __future__ import annotations

import json

from airflow_relay.core.item import Run
from airflow_relay.hooks import conditions as ring
from airflow_relay.ledger import alerts, items
from airflow_relay.ledger.store import Ledger
from support.pipelines import Driver

TICK = {"minutes": 5}


class Airflow:
    """Variables and pause states, as the Airflow ring would read them."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.paused: set[str] = set()

    def set(self, name: str, value: object) -> None:
        """What a person does on the Variables page."""
        self.variables[name] = json.dumps(value)


def tick(drive: Driver) -> list[Run]:
    """The next round of the tick: conditions read afresh, then a dispatch; nothing else has happened."""
    drive.later(**TICK)
    drive.conditions = ring.read_conditions(drive.ledger, drive.now)
    return drive.dispatch()


def waiting(drive: Driver, *keys: str) -> None:
    """Take items in under the present conditions and expect that none of them is granted."""
    drive.conditions = ring.read_conditions(
        drive.ledger, drive.now, targets=[f"{drive.pipeline.name}__first"]
    )
    assert drive.intake(*keys) == []
    assert drive.dispatch() == []


def keys_of(drive: Driver, granted: list[Run]) -> list[str]:
    with drive.ledger.read() as tx:
        return [items.by_id(tx, run.item_id).key for run in granted]


def texts(ledger: Ledger, prefix: str) -> list[str]:
    with ledger.read() as tx:
        return [a.text for a in alerts.unsent(tx) if a.dedup_key.startswith(prefix)]

"""Plays the recovery sweep on a ledger, for tests."""

from __future__ import annotations

from datetime import timedelta

from airflow_relay.core.finding import RecoveryAction
from airflow_relay.core.item import Run
from airflow_relay.core.rules import RuleSet
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import alerts, dead_letters, dispatching, recovering
from airflow_relay.ledger.recovering import Heard, Plan, Scope
from airflow_relay.ledger.schema import items as item_table
from support.pipelines import START, Driver

RULES = RuleSet()


class Sweeper:
    """Plays ``relay__recovery`` for a driver."""

    def __init__(self, drive: Driver, rules: RuleSet = RULES) -> None:
        self.drive = drive
        self.rules = rules

    def plan(self, heard: dict[int, Heard] | None = None, scope: Scope | None = None) -> Plan:
        with self.drive.ledger.read() as tx:
            return recovering.plan(
                tx,
                rules=self.rules,
                conditions=self.drive.conditions,
                heard=heard or {},
                now=self.drive.now,
                scope=scope,
            )

    def perform(self, plan: Plan) -> list[Run]:
        with self.drive.ledger.dispatcher() as tx:
            for order, decision in enumerate(plan.acting):
                rules = self.rules.of(decision.pipeline)
                if decision.action is RecoveryAction.REFIRE:
                    recovering.refire(tx, decision, rules=rules, now=self.drive.now, order=order)
                elif decision.action is RecoveryAction.DEAD_LETTER:
                    recovering.dead_letter(tx, decision, rules=rules, now=self.drive.now)
                elif decision.action is RecoveryAction.ALERT_LATE:
                    recovering.alert_late(tx, decision, now=self.drive.now)
            return dispatching.run_dispatch(tx, self.drive.conditions, self.drive.now)

    def sweep(self, heard: dict[int, Heard] | None = None) -> list[Run]:
        return self.perform(self.plan(heard))

    def only(self, heard: dict[int, Heard] | None = None) -> RecoveryAction:
        """What the sweep would do about the only stale item."""
        counts = self.plan(heard).counts
        assert sum(counts.values()) == 1, counts
        return next(iter(counts))


def fail(drive: Driver, run: Run, error: str = "timeout") -> list[Run]:
    """Start a run and let it fail; returns what its end let in."""
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    return list(drive.end(run, result=RunResult.FAILED, error=error).grants)


def one_failed(drive: Driver, key: str = "a", error: str = "timeout") -> Run:
    """An item that failed in its first stage, just now."""
    (run,) = drive.intake(key)
    fail(drive, run, error)
    return run


def letters(drive: Driver) -> list[dead_letters.DeadLetter]:
    with drive.ledger.read() as tx:
        return dead_letters.listing(tx)


def alert_texts(drive: Driver) -> list[str]:
    with drive.ledger.read() as tx:
        return [a.text for a in alerts.unsent(tx)]


def stuck(drive: Driver, number: int) -> None:
    """Items that failed long ago, written as the ledger would have them."""
    (run,) = drive.intake("seed")
    fail(drive, run)
    seed = drive.item("seed")
    rows = []
    for index in range(number):
        stage = ("first", "second", "third")[index % 3]
        rows.append(
            {
                **{c.name: getattr(seed, c.name) for c in item_table.columns if c.name not in ("id", "keys")},
                "key": f"item-{index}",
                "stage": stage,
                "rank": drive.pipeline.rank(stage),
                "keys": list(drive.pipeline.keys(stage)),
                "dag_id": drive.pipeline.dag_id(stage),
                "visits": {stage: 1},
                "last_activity_at": START - timedelta(minutes=number - index),
            }
        )
    with drive.ledger.write() as tx:
        tx.conn.execute(item_table.insert(), rows)

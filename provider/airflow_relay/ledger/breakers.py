"""Breakers in the ledger: shared by all workers, changed in the transaction of the run that ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update

from airflow_relay.core import breaker as rules
from airflow_relay.core.breaker import Breaker, BreakerGate, Step
from airflow_relay.core.item import Run
from airflow_relay.core.snapshot import StageKey
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import alerts
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import breakers


def load_all(tx: Tx) -> dict[tuple[str, str], Breaker]:
    """(pipeline, stage) → breaker, of the stages that have ever had a failure."""
    rows = tx.conn.execute(select(breakers).order_by(breakers.c.pipeline, breakers.c.stage))
    return {(r.pipeline, r.stage): Breaker.from_json(r.data) for r in rows}


def gates(tx: Tx, now: datetime) -> dict[tuple[str, str], BreakerGate]:
    """What each breaker lets pass now."""
    return gates_of(load_all(tx), now)


def gates_of(found: Mapping[StageKey, Breaker], now: datetime) -> dict[StageKey, BreakerGate]:
    """The same of breakers that have been read."""
    return {where: rules.gate(breaker, now) for where, breaker in found.items()}


_DATA: Final = select(breakers.c.data).where(
    breakers.c.pipeline == bindparam("of_pipeline"), breakers.c.stage == bindparam("of_stage")
)


def change(tx: Tx, pipeline: str, stage: str, now: datetime, rule: Callable[[Breaker], Step]) -> Step:
    """Apply a rule to a stage's breaker and keep the outcome. The caller holds the dispatcher's lock."""
    return _apply(tx, (pipeline, stage), now, rule, data_of(tx, pipeline, stage))


def data_of(tx: Tx, pipeline: str, stage: str) -> Any:
    """The row's data of a stage's breaker; ``None`` before its first failure."""
    return tx.conn.execute(_DATA, {"of_pipeline": pipeline, "of_stage": stage}).scalar()


def _apply(tx: Tx, of: StageKey, now: datetime, rule: Callable[[Breaker], Step], data: Any) -> Step:
    pipeline, stage = of
    before = Breaker() if data is None else Breaker.from_json(data)
    step = rule(before)
    if step.breaker != before:
        row = {"data": step.breaker.to_json(), "updated_at": now}
        if data is None:
            tx.conn.execute(insert(breakers).values(pipeline=pipeline, stage=stage, **row))
        else:
            where = (breakers.c.pipeline == pipeline) & (breakers.c.stage == stage)
            tx.conn.execute(update(breakers).where(where).values(**row))
    if step.alerts:
        text = f"Breaker of {pipeline}.{stage} is open: {step.reason}"
        alerts.raise_alert(tx, f"breaker:{pipeline}.{stage}:{now.isoformat()}", text, now)
    return step


def run_ended(
    tx: Tx, run: Run, data: Any, *, result: RunResult, error_class: str | None, now: datetime
) -> Step:
    """A run was closed: an answer of the service is recorded; anything else only ends a probe's lease.

    :param data: of the stage's breaker: :func:`data_of`, or what was read with the run's lock.
    """

    def rule(breaker: Breaker) -> Step:
        return rules.run_ended(breaker, result=result, error_class=error_class, run_id=run.id, now=now)

    return _apply(tx, (run.pipeline, run.stage), now, rule, data)


def probe_granted(tx: Tx, run: Run, now: datetime) -> None:
    """The dispatcher has chosen this run to try the service."""
    change(tx, run.pipeline, run.stage, now, lambda b: rules.probe_granted(b, run_id=run.id))

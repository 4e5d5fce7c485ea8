"""What Airflow says of the runs that hold slots, and making the ledger agree; tick and sweep use it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.completion import (
    Completion,
    StageShape,
    completion_of,
    has_ended,
)
from airflow_relay.core.finding import RunLiveness
from airflow_relay.core.item import Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import closing, declarations, dispatching, items, runs
from airflow_relay.ledger.closing import Closed
from airflow_relay.ledger.results import Stored
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.stage_result import with_result

log: Final = logging.getLogger(__name__)

BATCH: Final = 50
"""Run ids asked for at once: Airflow refuses a query of many long ids."""

CLOSED_AT_ONCE: Final = 10
"""Runs that one transaction closes: hand-offs wait for as long as it holds the dispatcher's lock."""

DEADLINE_GRACE: Final = timedelta(minutes=2)
"""Guard and trigger end an overdue run themselves; after this the tick does."""

_RUN_ENDS: Final = frozenset({"success", "failed"})


@dataclass(frozen=True)
class Examined:
    """An open run, and what Airflow says of it."""

    run: Run
    liveness: RunLiveness
    states: Mapping[str, Any]


def examine(candidates: Sequence[Run], *, paused_dags: frozenset[str]) -> list[Examined]:
    """Ask Airflow about open runs: one call per 50 of a DAG."""
    by_dag: dict[str, list[Run]] = {}
    found: list[Examined] = []
    for run in candidates:
        if run.confirmed_at is None:
            found.append(Examined(run, RunLiveness.UNCONFIRMED, {}))
        else:
            by_dag.setdefault(run.dag_id, []).append(run)
    for dag_id, dag_runs in by_dag.items():
        for start in range(0, len(dag_runs), BATCH):
            batch = dag_runs[start : start + BATCH]
            states = compat.task_states(dag_id, [r.run_id for r in batch])
            found += [_judge(r, states.get(r.run_id), paused=dag_id in paused_dags) for r in batch]
    return found


def _judge(run: Run, states: Mapping[str, Any] | None, *, paused: bool) -> Examined:
    if states is None:
        return Examined(run, RunLiveness.GONE, {})
    if not _is_over(run, states):
        waits = paused and run.started_at is None
        return Examined(run, RunLiveness.QUEUED_PAUSED if waits else RunLiveness.ALIVE, states)
    failed = completion_of(states, _shape(run, states)).result is RunResult.FAILED
    return Examined(run, RunLiveness.FAILED_UNTOLD if failed else RunLiveness.SUCCEEDED_UNTOLD, states)


def _is_over(run: Run, states: Mapping[str, Any]) -> bool:
    """All tasks are final; or the run is, and the others will never be scheduled."""
    if has_ended(states):
        return True
    if any(state is not None for state in states.values() if str(state) not in _SETTLED):
        return False
    return compat.dag_run_state(run.dag_id, run.run_id) in _RUN_ENDS


_SETTLED: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed", "None"})


def _shape(run: Run, states: Mapping[str, Any]) -> StageShape:
    return StageShape.unknown(states) if run.shape is None else StageShape.from_json(run.shape)


def record_ends(
    ledger: Ledger, examined: Iterable[Examined], *, conditions: Conditions, ti: Any
) -> list[Run]:
    """Close the runs that ended without telling, ten in a transaction; returns the grants to send."""
    ended = [(one.run, completion) for one in examined if (completion := completion_for(one)) is not None]
    grants: list[Run] = []
    for start in range(0, len(ended), CLOSED_AT_ONCE):
        grants += _record(ledger, ended[start : start + CLOSED_AT_ONCE], conditions=conditions, ti=ti)
    return grants


def _record(
    ledger: Ledger, ended: Sequence[tuple[Run, Completion]], *, conditions: Conditions, ti: Any
) -> list[Run]:
    with ledger.read() as tx:
        declared = {name: declarations.load(tx, name) for name in {run.pipeline for run, _ in ended}}
        keys = {item.id: item.key for item in items.by_ids(tx, {run.item_id for run, _ in ended})}
    told = [
        (
            run,
            *_with_result(
                ledger,
                run,
                key=keys[run.item_id],
                pipeline=declared[run.pipeline],
                completion=completion,
                ti=ti,
            ),
        )
        for run, completion in ended
    ]
    now = utcnow()
    closed: list[Closed] = []
    with ledger.dispatcher() as tx:
        for run, completion, stored in told:
            closed.append(
                closing.close_run(
                    tx,
                    run.id,
                    pipeline=declared[run.pipeline],
                    completion=completion,
                    stored=stored,
                    clear_number=None,
                    now=now,
                    adaptive=conditions.adaptive,
                )
            )
        grants = dispatching.run_dispatch(tx, conditions, now)
    for one in closed:
        log.info("%s / %s: %s", one.run.dag_id, one.run.run_id, one.text)
    return grants


def completion_for(one: Examined) -> Completion | None:
    """What is to be recorded of a run; ``None`` while it is alive."""
    if one.liveness is RunLiveness.GONE:
        return Completion(RunResult.LOST, error_reason="Airflow no longer has the run: it was deleted")
    if one.liveness in (RunLiveness.FAILED_UNTOLD, RunLiveness.SUCCEEDED_UNTOLD):
        return completion_of(one.states, _shape(one.run, one.states))
    return None


def _with_result(
    ledger: Ledger, run: Run, *, key: str, pipeline: Pipeline, completion: Completion, ti: Any
) -> tuple[Completion, Stored | None]:
    """The run's return value, which its hand-off would have kept."""
    task_id = None if run.shape is None else run.shape["result"]
    if completion.result is not RunResult.SUCCESS or task_id is None:
        return completion, None
    value = ti.xcom_pull(dag_id=run.dag_id, run_id=run.run_id, task_ids=task_id, key="return_value")
    return with_result(
        ledger, run, key=key, pipeline=pipeline, completion=completion, returned=value, keeps_result=True
    )


def end_overdue(ledger: Ledger, *, conditions: Conditions, now: datetime) -> list[Run]:
    """Close runs past their deadline that neither guard nor trigger has ended; returns the grants to send."""
    grants: list[Run] = []
    with ledger.read() as tx:
        overdue = [
            r for r in runs.open_runs(tx) if r.deadline is not None and r.deadline + DEADLINE_GRACE < now
        ]
    for run in overdue:
        completion = Completion(
            RunResult.FAILED, error_class="timeout", error_reason=f"past its deadline of {run.deadline}"
        )
        with ledger.dispatcher() as tx:
            pipeline = declarations.load(tx, run.pipeline)
            closing.close_run(
                tx,
                run.id,
                pipeline=pipeline,
                completion=completion,
                stored=None,
                clear_number=None,
                now=now,
                adaptive=conditions.adaptive,
            )
            grants += dispatching.run_dispatch(tx, conditions, now)
    return grants


def withdraw_paused(ledger: Ledger, examined: Iterable[Examined], *, now: datetime) -> int:
    """Take back grants that wait in Airflow behind a paused DAG: meanwhile their slots serve others.

    The queued run then finds that it is superseded, so the item runs once.
    """
    count = 0
    for one in examined:
        if one.liveness is RunLiveness.QUEUED_PAUSED:
            with ledger.dispatcher() as tx:
                pipeline = declarations.load(tx, one.run.pipeline)
                why = f"{one.run.dag_id} is paused"
                count += closing.withdraw(tx, one.run.id, pipeline=pipeline, why=why, now=now)
    return count

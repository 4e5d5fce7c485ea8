"""Collects the facts of this deployment and hands them to the doctor's rules. For the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from airflow.sdk.configuration import conf
from sqlalchemy.engine import make_url

from airflow_relay import metadata
from airflow_relay.core.limits import HOLD_VARIABLE, LIMITS_VARIABLE, parse_holds, parse_limits
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.rules import VARIABLE as RULES_VARIABLE
from airflow_relay.core.rules import parse_rules
from airflow_relay.core.states import WaitReason
from airflow_relay.hooks import agent, conditions
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.ledger import alerts, declarations, interventions, reports
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations import doctor_checks as checks
from airflow_relay.operations.doctor_checks import DagFacts, Finding, Settings
from airflow_relay.operations.health import check_recovery

OPERATIONS_DAGS: Final = (
    "relay__dispatch",
    "relay__recovery",
    "relay__watchdog",
    "relay__dead_letter",
    "relay__admin",
)


def examine(open_ledger: Callable[[], Ledger], now: datetime) -> Iterator[Finding]:
    """Every finding, the ledger's first. Whatever cannot be asked is a finding of its own.

    :param open_ledger: resolves and checks the ledger; what it raises is the finding.
    """
    ledger = None
    try:
        ledger = open_ledger()
    except LedgerError as error:
        yield checks.problem("ledger", str(error), "see the text")
    else:
        yield checks.ok("ledger", f"{ledger_hook.ledger_source()}, its schema is up to date")
        yield from _fit(ledger)
    unreachable = metadata.why_unreachable()
    if unreachable is not None:
        yield checks.problem("airflow", f"its database does not answer: {unreachable}", "airflow db migrate")
        return
    yield from _airflow(ledger)
    yield from _connections()
    if ledger is not None:
        yield from _recovery(ledger, now)
        yield from _work(ledger, now)
    yield from checks.check_settings(_settings())


def _fit(ledger: Ledger) -> Iterator[Finding]:
    """SQLite is for one machine, whether embedded or named by the connection."""
    executor = conf.get("core", "executor", fallback="LocalExecutor")
    if make_url(ledger.url).get_backend_name() != "sqlite":
        yield checks.ok("executor", f"{executor} with a ledger that any machine can reach")
        return
    try:
        ledger_hook.embedded_url()
    except LedgerError as error:
        yield checks.problem("executor", str(error), "a connection relay_ledger to a PostgreSQL database")
    else:
        yield checks.ok("executor", f"{executor} with a SQLite ledger, on this machine alone")


def _airflow(ledger: Ledger | None) -> Iterator[Finding]:
    expected = [*OPERATIONS_DAGS]
    if ledger is not None:
        with ledger.read() as tx:
            declared = declarations.load_all(tx)
        expected += [
            pipeline.dag_id(stage.name) for pipeline in declared.values() for stage in pipeline.stages
        ]
        if not declared:
            yield checks.advice(
                "dags",
                "no pipeline is known to the ledger yet",
                "its first intake tells: trigger the entry stage's DAG",
            )
    found = {
        dag_id: DagFacts(
            is_missing=status.is_stale,
            is_paused=status.is_paused,
            has_import_errors=status.has_import_errors,
        )
        for dag_id, status in metadata.dag_statuses(expected).items()
    }
    yield from checks.check_dags(expected, found)
    yield from checks.check_import_errors(metadata.import_errors())
    yield from _components()


def _components() -> Iterator[Finding]:
    alive = [c.kind for c in metadata.components() if c.is_alive]
    yield checks.check_component(
        "scheduler", alive.count("SchedulerJob"), "start `airflow scheduler`: nothing runs without it"
    )
    yield checks.check_component(
        "dag processor", alive.count("DagProcessorJob"), "start `airflow dag-processor`"
    )
    yield checks.check_triggerer(
        alive.count("TriggererJob"),
        triggers=metadata.count_triggers(),
        capacity=conf.getint("triggerer", "capacity", fallback=1000),
    )
    yield checks.check_latency(
        metadata.count_running_runs(),
        per_loop=conf.getint("scheduler", "max_dagruns_per_loop_to_schedule", fallback=20),
        idle_sleep=conf.getfloat("scheduler", "scheduler_idle_sleep_time", fallback=1.0),
    )


def _connections() -> Iterator[Finding]:
    found = metadata.connection(agent.AGENT_CONN_ID)
    if found is None:
        yield checks.advice(
            "connections",
            f"{agent.AGENT_CONN_ID} is not set: agent jobs that name no other connection fail",
            "add it, type relay_agent (an HTTP URL)",
        )
    else:
        yield _agent(found)
    if metadata.connection("relay_alerts") is None:
        yield checks.advice(
            "connections",
            "relay_alerts is not set: alerts go to the task log only",
            "add it, type http: a webhook that takes them",
        )
    else:
        yield checks.ok("connections", "relay_alerts is set")


def _agent(connection: Any) -> Finding:
    try:
        agent.settings_of(connection, agent.AGENT_CONN_ID)
    except agent.AgentConnectionError as error:
        return checks.problem("connections", str(error), "change the connection")
    return checks.ok("connections", f"{agent.AGENT_CONN_ID} can be used as it is")


def _recovery(ledger: Ledger, now: datetime) -> Iterator[Finding]:
    for watched in check_recovery(lambda: ledger, now=now).watched:
        if watched.health.value == "ok":
            yield checks.ok("heartbeats", watched.sentence)
        else:
            yield checks.problem("heartbeats", watched.sentence, "unpause its DAG, see its last run")
    with ledger.read() as tx:
        unsent, error = alerts.count_unsent(tx)
    if unsent:
        said = f" (it said: {error})" if error else ""
        yield checks.problem(
            "alerts", f"{unsent} alerts wait for their channel{said}", "check the connection relay_alerts"
        )


def _work(ledger: Ledger, now: datetime) -> Iterator[Finding]:
    known = conditions.read_conditions(ledger, now)
    with ledger.read() as tx:
        declared = declarations.load_all(tx)
        stranded = interventions.stranded(tx)
        room = reports.WaitingRoom.look(tx, known, now)
        overdue = _overdue(tx, room, now)
    yield from _variables(declared, now)
    yield from checks.check_idle_keys(declared.values(), known.limits)
    yield from checks.check_waiting(room.by_stage(), overdue)
    yield from checks.check_stranded(stranded)


def _overdue(tx: Tx, room: reports.WaitingRoom, now: datetime) -> int:
    """Items that nothing stops; one that was touched a moment ago has its dispatch still to come."""
    old = reports.ready_since_before(tx, now - checks.SETTLED)
    return sum(
        now - item.last_activity_at > checks.SETTLED and room.reason(item)[0] is WaitReason.NEXT
        for item in old
    )


def _variables(declared: dict[str, Pipeline], now: datetime) -> Iterator[Finding]:
    keys = {key for p in declared.values() for s in p.stages for key in p.keys(s.name)}
    keys |= {key for p in declared.values() for key in p.declared_limits()}
    names = list(declared)
    _, wrong_limits = parse_limits(metadata.variable(LIMITS_VARIABLE), known=[*keys, *names])
    _, wrong_holds = parse_holds(metadata.variable(HOLD_VARIABLE), now, known=names)
    _, wrong_rules = parse_rules(metadata.variable(RULES_VARIABLE), known_pipelines=names)
    for said in (*wrong_limits, *wrong_holds, *wrong_rules):
        yield checks.problem("variables", said, "change the Variable: Admin, Variables")


def _settings() -> Settings:
    return Settings(
        idle_sleep=conf.getfloat("scheduler", "scheduler_idle_sleep_time", fallback=1.0),
        per_loop=conf.getint("scheduler", "max_dagruns_per_loop_to_schedule", fallback=20),
        min_heartbeat=conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0),
        reparse=conf.getfloat("dag_processor", "min_file_process_interval", fallback=30.0),
        is_preloaded="airflow_relay.local_settings" in sys.modules,
    )

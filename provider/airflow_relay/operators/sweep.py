"""The tasks of ``relay__recovery``: each hands what it found on by XCom, so that a sweep reads left to right.

What goes through XCom is bounded: run ids that Airflow is asked about, decisions that the cap can act on, and
counts of the rest. The ledger is asked again where more is needed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from airflow.sdk import BaseNotifier, Variable
from airflow.sdk.observability import stats

from airflow_relay.clock import utcnow
from airflow_relay.compat import TargetDagError
from airflow_relay.core import recovery
from airflow_relay.core.finding import Decision, RecoveryAction, RunLiveness
from airflow_relay.core.item import Item, Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.rules import VARIABLE, RuleSet, parse_rules
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.watch import SWEEP
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import (
    alerts,
    declarations,
    dispatching,
    governing,
    items,
    recovering,
    runs,
)
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.recovering import Heard, Plan, Scope
from airflow_relay.ledger.store import Ledger
from airflow_relay.notifications.alerts import send_alerts
from airflow_relay.operators import reconcile
from airflow_relay.operators.reconcile import Examined
from airflow_relay.operators.trigger import send_grants

log: Final = logging.getLogger(__name__)

Json = dict[str, Any]

ASKED_LIMIT: Final = 500
"""Runs that one sweep asks Airflow about, oldest grants first: ten calls."""

BATCH: Final = 10
"""Items that one transaction changes; their runs are requested before the next ten are charged."""

_ENDED_BADLY: Final = frozenset({RunLiveness.FAILED_UNTOLD, RunLiveness.GONE})

EXPECTED: Final = timedelta(hours=2)
"""How long a run may take before it is told of, when its stage names neither a time nor a timeout."""


def load_rules(params: Mapping[str, Any]) -> Json:
    """The rules in force: the Variable ``relay_rules`` under the form's dry run and exclude list.

    Returns ``{"rules", "problems", "dry_run", "summary"}``; what is wrong in the Variable is alerted once.
    """
    ledger = get_ledger()
    with ledger.read() as tx:
        known = list(declarations.load_all(tx))
    dry_run = bool(params.get("dry_run"))
    rules, problems = parse_rules(
        Variable.get(VARIABLE, default=None),
        dry_run=dry_run,
        exclude=[str(key) for key in params.get("exclude") or ()],
        known_pipelines=known or None,
    )
    for problem in problems:
        log.warning("%s", problem)
    if problems:
        digest = hashlib.sha256("\n".join(problems).encode()).hexdigest()[:16]
        with ledger.dispatcher() as tx:
            alerts.raise_alert(tx, f"rules:{digest}", " ".join(problems), utcnow())
    given = rules.to_json()
    summary = " ".join(problems) or "The rules are valid."
    return {"rules": given, "problems": list(problems), "dry_run": dry_run, "summary": summary}


def rules_of(loaded: Mapping[str, Any]) -> RuleSet:
    """The rules that :func:`load_rules` has handed on."""
    return parse_rules(loaded["rules"])[0]


def scan(loaded: Mapping[str, Any]) -> Json:
    """Count what is stale, and name the runs that hold slots. Returns ``{"stale", "runs", "summary"}``."""
    ledger, now = get_ledger(), utcnow()
    with ledger.read() as tx:
        stale = recovering.count_stale(tx, rules_of(loaded), now)
        held = runs.open_runs(tx)
    summary = (
        f"{stale.failed} failed and {stale.in_flight} running items are stale; {stale.ready} ready ones are "
        f"left to the dispatcher; {len(held)} runs hold slots."
    )
    log.info("%s", summary)
    return {
        "stale": {"failed": stale.failed, "in_flight": stale.in_flight, "ready": stale.ready},
        "runs": [run.id for run in held[:ASKED_LIMIT]],
        "summary": summary,
    }


def reconcile_runs(loaded: Mapping[str, Any], scanned: Mapping[str, Any], ti: Any) -> Json:
    """Ask Airflow about the runs that hold slots, 50 in a call, and record those that ended without telling.

    Returns ``{"heard": {item id: [liveness, last activity or null]}, "recorded", "granted", "summary"}``.
    """
    ledger, now, rules = get_ledger(), utcnow(), rules_of(loaded)
    with ledger.read() as tx:
        named = set(scanned["runs"])
        held = [run for run in runs.open_runs(tx) if run.id in named]
        holders = {item.id: item for item in items.by_ids(tx, {run.item_id for run in held})}
        declared = declarations.load_all(tx)
    conditions = read_conditions(ledger, now, targets={run.dag_id for run in held})
    examined = reconcile.examine(held, paused_dags=conditions.paused_dags)
    ended = [e for e in examined if reconcile.completion_for(e) is not None]
    wet = [e for e in ended if not rules.of(e.run.pipeline).dry_run]
    grants = reconcile.record_ends(ledger, wet, conditions=conditions, ti=ti)
    unsent = _send(ledger, grants)
    recorded = {e.run.id for e in wet}
    heard: dict[str, list[str | None]] = {}
    for one in examined:
        liveness = RunLiveness.ALIVE_LATE if _is_late(one, declared, now) else one.liveness
        was_idle_since = None
        if one.run.id in recorded and one.liveness in _ENDED_BADLY:
            liveness, was_idle_since = RunLiveness.NO_RUN, holders[one.run.item_id].last_activity_at
        heard[str(one.run.item_id)] = [
            liveness.value,
            None if was_idle_since is None else was_idle_since.isoformat(),
        ]
    summary = f"Asked about {len(held)} runs: {len(ended)} had ended without telling.{unsent}"
    log.info("%s", summary)
    return {"heard": heard, "recorded": len(wet), "granted": len(grants), "summary": summary}


def _is_late(one: Examined, declared: Mapping[str, Pipeline], now: datetime) -> bool:
    pipeline = declared.get(one.run.pipeline)
    expected = EXPECTED
    if pipeline is not None and pipeline.has_stage(one.run.stage):
        stage = pipeline.stage(one.run.stage)
        expected = stage.expected or stage.timeout or EXPECTED
    return one.liveness is RunLiveness.ALIVE and recovery.is_late(one.run, expected=expected, now=now)


def heard_of(reconciled: Mapping[str, Any]) -> dict[int, Heard]:
    """What :func:`reconcile_runs` has handed on."""
    return {
        int(item): Heard(RunLiveness(liveness), None if since is None else datetime.fromisoformat(since))
        for item, (liveness, since) in reconciled["heard"].items()
    }


def decide(loaded: Mapping[str, Any], reconciled: Mapping[str, Any]) -> Json:
    """Apply the rules to everything that is stale.

    Returns ``{"refire": [decision], "escalate": [decision], "counts": {action: n}, "examples", "summary"}``.
    """
    ledger, now, rules = get_ledger(), utcnow(), rules_of(loaded)
    with ledger.read() as tx:
        targets = recovering.stale_dags(tx, rules, now)
    conditions = read_conditions(ledger, now, targets=targets)
    with ledger.read() as tx:
        plan = recovering.plan(tx, rules=rules, conditions=conditions, heard=heard_of(reconciled), now=now)
    summary = summary_of(plan)
    log.info("%s", summary)
    refires = [d.to_json() for d in plan.acting if d.action is RecoveryAction.REFIRE]
    others = [
        d.to_json()
        for d in plan.acting
        if d.action in (RecoveryAction.DEAD_LETTER, RecoveryAction.ALERT_LATE)
    ]
    return {
        "refire": refires,
        "escalate": others,
        "counts": {action.value: count for action, count in plan.counts.items()},
        "examples": {action.value: list(said) for action, said in plan.examples.items()},
        "stranded": plan.stranded,
        "summary": summary,
    }


def summary_of(plan: Plan) -> str:
    """One sentence for people: looked at, to do, and why the rest is left."""
    text = recovery.summary_of(plan.counts)
    if plan.stranded:
        text += f" {plan.stranded} are in a stage that no longer exists: airflow relay move."
    return text


def refire(loaded: Mapping[str, Any], decided: Mapping[str, Any]) -> Json:
    """Charge and grant again, ten items a time, and request their runs.

    Returns ``{"refired": [key], "summary"}``.
    """
    ledger, rules = get_ledger(), rules_of(loaded)
    decisions = [Decision.from_json(d) for d in decided["refire"]]
    conditions = read_conditions(ledger, utcnow(), targets=_dags_of(ledger, decisions))
    refired, unsent = refire_all(ledger, decisions, rules=rules, conditions=conditions)
    summary = f"{len(refired)} of {len(decisions)} refired."
    if len(refired) < len(decisions):
        summary += " The others have moved meanwhile."
    summary += unsent or _send(ledger, [])
    log.info("%s", summary)
    stats.incr("relay.recovery.refired", len(refired))
    return {"refired": [item.key for item in refired], "summary": summary}


def refire_all(
    ledger: Ledger, decisions: Sequence[Decision], *, rules: RuleSet, conditions: Conditions
) -> tuple[list[Item], str]:
    """Perform refires, once each however often this is repeated.

    :return: the refired items, and in words what could not be sent.
    """
    refired: list[Item] = []
    unsent = ""
    for start in range(0, len(decisions), BATCH):
        now = utcnow()
        with ledger.dispatcher() as tx:
            for order, decision in enumerate(decisions[start : start + BATCH]):
                item = recovering.refire(
                    tx, decision, rules=rules.of(decision.pipeline), now=now, order=order
                )
                if item is not None:
                    refired.append(item)
            grants = dispatching.run_dispatch(tx, conditions, now)
        crash_point(CrashPoint.SWEEP_CHARGED)
        unsent = _send(ledger, grants) or unsent
    return refired, unsent


def _dags_of(ledger: Ledger, decisions: Iterable[Decision]) -> set[str]:
    with ledger.read() as tx:
        return {item.dag_id for item in items.by_ids(tx, {d.item_id for d in decisions})}


def _send(ledger: Ledger, grants: list[Run]) -> str:
    """Send these grants and those whose sender was lost.

    A broken DAG is told and stops nothing: the grant stays in the outbox, and the tick fails for it.
    """
    lost = [g for g in ledger.unconfirmed(utcnow()) if g.id not in {o.id for o in grants}]
    try:
        send_grants(ledger, [*grants, *lost])
    except TargetDagError as error:
        log.error("%s", error)  # noqa: TRY400 - the text is for people, the trace is not
        return f" Not sent: {error}"
    return ""


def escalate(
    loaded: Mapping[str, Any],
    decided: Mapping[str, Any],
    context: Mapping[str, Any],
    notifier: BaseNotifier | None = None,
) -> Json:
    """Move what is given up to the dead letters, tell of late runs, and send all alerts that wait.

    Returns ``{"dead", "late", "alerts", "summary"}``.
    """
    ledger, rules = get_ledger(), rules_of(loaded)
    decisions = [Decision.from_json(d) for d in decided["escalate"]]
    dead = _each(
        ledger,
        [d for d in decisions if d.action is RecoveryAction.DEAD_LETTER],
        lambda tx, d, now: recovering.dead_letter(tx, d, rules=rules.of(d.pipeline), now=now) is not None,
    )
    late = _each(
        ledger,
        [d for d in decisions if d.action is RecoveryAction.ALERT_LATE],
        lambda tx, d, now: recovering.alert_late(tx, d, now=now),
    )
    sent = send_alerts(ledger, context, notifier)
    summary = f"{dead} to the dead letters, {late} late runs told of, {sent.taken} alerts sent."
    if sent.refused:
        summary += f" {sent.refused} alerts were refused and are sent again: {sent.error}"
    log.info("%s", summary)
    stats.incr("relay.recovery.dead_lettered", dead)
    return {"dead": dead, "late": late, "alerts": sent.taken, "refused": sent.refused, "summary": summary}


def _each(
    ledger: Ledger, decisions: Sequence[Decision], act: Callable[[Tx, Decision, datetime], bool]
) -> int:
    done = 0
    for start in range(0, len(decisions), BATCH):
        now = utcnow()
        with ledger.dispatcher() as tx:
            done += sum(act(tx, decision, now) for decision in decisions[start : start + BATCH])
    return done


def heartbeat(loaded: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Json:
    """Say that the sweep has come to its end. A dry run by form is no sweep: it does not count as one."""
    summary = " ".join(str(part["summary"]) for part in parts)
    if loaded["problems"]:
        summary += f" Rules: {loaded['summary']}"
    if loaded["dry_run"]:
        summary = f"DRY RUN. {summary}"
    else:
        ledger = get_ledger()
        with ledger.write() as tx:
            governing.beat(tx, SWEEP, utcnow(), {"summary": summary})
    log.info("%s", summary)
    return {"summary": summary}


def serve_stage(scope: Scope) -> tuple[list[Item], str]:
    """Refire what may be refired at one stage, by the rules of the sweep; for its fallback DAG."""
    ledger, now = get_ledger(), utcnow()
    rules = rules_of(load_rules({}))
    with ledger.read() as tx:
        targets = recovering.stale_dags(tx, rules, now)
    conditions = read_conditions(ledger, now, targets=targets)
    with ledger.read() as tx:
        plan = recovering.plan(tx, rules=rules, conditions=conditions, heard={}, now=now, scope=scope)
    refires = [d for d in plan.acting if d.action is RecoveryAction.REFIRE]
    return refire_all(ledger, refires, rules=rules, conditions=conditions)

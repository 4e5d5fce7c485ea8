"""The doom-spiral rules: what the recovery sweep may do about an item that nothing moves (DESIGN 4).

Recovery grants again and never executes work. Without these rules a sweep only compounds failures, so each
rule is one function, in the order of :data:`_RULES`; the first that has an answer decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from airflow_relay.core.errors.taxonomy import NOT_RETRYABLE
from airflow_relay.core.finding import (
    ACTING,
    RECORDED_AS,
    Decision,
    Finding,
    RecoveryAction,
    RunLiveness,
)
from airflow_relay.core.item import Item, Run
from airflow_relay.core.rules import RecoveryRules, RuleSet
from airflow_relay.core.states import ItemState, WaitReason

__all__ = [
    "ACTING",
    "RECORDED_AS",
    "Decision",
    "Finding",
    "RecoveryAction",
    "RecoveryRules",
    "RuleSet",
    "RunLiveness",
    "attempts_today",
    "charge",
    "decide",
    "fresh_budget",
    "is_late",
    "local_day",
    "plan_sweep",
    "summary",
    "summary_of",
    "sweep_order",
    "would_refire",
]


def local_day(now: datetime, timezone: str) -> str:
    """ISO date of an instant in a timezone.

    :raises zoneinfo.ZoneInfoNotFoundError: there is no such timezone.
    """
    return now.astimezone(ZoneInfo(timezone)).date().isoformat()


def attempts_today(item: Item, *, now: datetime, timezone: str) -> int:
    """Attempts that count against today's cap; so do those of a day ahead, after a clock was set back, and
    those whose last one falls on today since the pipeline has moved to another timezone.
    """
    if item.attempts_day is None:
        return 0
    last = item.last_attempt_at
    day = max(item.attempts_day, local_day(last, timezone) if last else "")
    return item.attempts if day >= local_day(now, timezone) else 0


def charge(item: Item, *, now: datetime, timezone: str) -> dict[str, Any]:
    """The item's fields when what the sweep made ready is granted: that is the attempt, and not the wait
    for a slot before it. They stay when the item enters another stage: the cap is per item and day, and the
    cooldown runs on.
    """
    today = local_day(now, timezone)
    return {
        "attempts": attempts_today(item, now=now, timezone=timezone) + 1,
        "attempts_day": max(today, item.attempts_day or today),
        "last_attempt_at": now,
        "recovering": False,
    }


def fresh_budget() -> dict[str, Any]:
    """The item's fields after a redrive: a person grants a new budget. The cooldown since the last automatic
    attempt runs on, so that sweep and person together are never faster than the sweep alone.
    """
    return {"attempts": 0, "attempts_day": None, "recovering": False}


def is_late(run: Run, *, expected: timedelta, now: datetime) -> bool:
    """Whether a live run takes longer than its stage is expected to; a run not yet started is not late."""
    return run.started_at is not None and now - run.started_at > expected


def decide(finding: Finding, *, now: datetime, rules: RecoveryRules) -> Decision:
    """What may be done about one item at ``now`` (aware UTC) by the rules of its pipeline.

    The cap on refires per sweep is the one rule that concerns all items together: :func:`plan_sweep`.
    """
    action, reason, next_allowed_at = _ruling(_Case(finding=finding, now=now, rules=rules))
    item = finding.item
    decision = Decision(
        item_id=item.id,
        pipeline=item.pipeline,
        key=item.key,
        stage=item.stage,
        epoch=item.epoch,
        action=action,
        reason=reason,
        next_allowed_at=next_allowed_at,
        record=None if action is RecoveryAction.EXCLUDED else RECORDED_AS.get(finding.liveness),
    )
    return _held_back(decision) if rules.dry_run else decision


def would_refire(finding: Finding, *, now: datetime, rules: RecoveryRules) -> bool:
    """Whether :func:`decide` refires the item, or would without a dry run."""
    return _ruling(_Case(finding=finding, now=now, rules=rules))[0] is RecoveryAction.REFIRE


def _ruling(case: _Case) -> _Ruling:
    for rule in _RULES:
        ruling = rule(case)
        if ruling is not None:
            return ruling
    return _refire(case)


def _held_back(decision: Decision) -> Decision:
    if decision.action not in ACTING:
        return replace(decision, record=None)
    return replace(
        decision,
        action=RecoveryAction.DRY_RUN,
        would=decision.action,
        record=None,
        reason=f"Dry run, nothing is done. {decision.reason}",
    )


def plan_sweep(findings: Iterable[Finding], *, now: datetime, rules: RuleSet) -> list[Decision]:
    """Decide about all findings, highest stage and then oldest activity first, within the cap on refires."""
    decisions, refires = [], 0
    for finding in sorted(findings, key=lambda f: sweep_order(f.item)):
        decision = decide(finding, now=now, rules=rules.of(finding.item.pipeline))
        if RecoveryAction.REFIRE in (decision.action, decision.would):
            refires += 1
            if refires > rules.refires_per_sweep:
                decision = replace(
                    decision,
                    action=RecoveryAction.OVER_SWEEP_CAP,
                    reason=f"This sweep refires {rules.refires_per_sweep} items; the next one goes on here.",
                    would=None,
                )
        decisions.append(decision)
    return decisions


def sweep_order(item: Item) -> tuple[int, datetime, int]:
    """Sort key: highest stage first, as the dispatcher ranks, then the oldest activity."""
    return (-item.rank, item.last_activity_at, item.id)


def summary(decisions: Iterable[Decision]) -> str:
    """One sentence for people: scanned, done, and why the rest was left."""
    return summary_of(Counter(decision.action for decision in decisions))


def summary_of(counts: Mapping[RecoveryAction, int]) -> str:
    """The same sentence from action → number of items."""
    parts = [f"{counts[action]} {_WORDS[action]}" for action in RecoveryAction if counts.get(action)]
    total = sum(counts.values())
    items = "item" if total == 1 else "items"
    return f"Scanned {total} {items}: {', '.join(parts) or 'nothing to do'}."


_WORDS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.LEAVE: "left alone",
    RecoveryAction.ALERT_LATE: "alive but late (alerted)",
    RecoveryAction.REFIRE: "refired",
    RecoveryAction.RESEND: "requested again",
    RecoveryAction.RECORD_SUCCESS: "handed off late",
    RecoveryAction.DEAD_LETTER: "to the dead letters",
    RecoveryAction.WAIT_COOLDOWN: "in cooldown",
    RecoveryAction.SKIP_PAUSED: "behind a paused DAG",
    RecoveryAction.SKIP_BREAKER: "behind an open breaker",
    RecoveryAction.SKIP_SLOT: "without a free slot",
    RecoveryAction.EXCLUDED: "excluded",
    RecoveryAction.OVER_SWEEP_CAP: "left for the next sweep",
    RecoveryAction.DRY_RUN: "held back by the dry run",
}


class _Case(NamedTuple):
    finding: Finding
    now: datetime
    rules: RecoveryRules

    @property
    def item(self) -> Item:
        return self.finding.item

    @property
    def error_class(self) -> str | None:
        """Of the run that ended untold, else of the failure that the item waits with."""
        run = self.finding.run if self.finding.liveness in RECORDED_AS else None
        return self.item.error_class if run is None else run.error_class


_Ruling = tuple[RecoveryAction, str, datetime | None]


def _ended(case: _Case) -> _Ruling | None:
    state = case.item.state
    if state is ItemState.DEAD:
        return RecoveryAction.LEAVE, "In the dead letters: a person decides.", None
    if state in (ItemState.DONE, ItemState.DISCARDED):
        return RecoveryAction.LEAVE, f"Already {state.value}.", None
    return None


def _excluded(case: _Case) -> _Ruling | None:
    if case.item.key not in case.rules.exclude:
        return None
    return RecoveryAction.EXCLUDED, "On the exclude list.", None


def _alive(case: _Case) -> _Ruling | None:
    """A stage that works or waits inside Airflow is never touched, however long it takes."""
    liveness = case.finding.liveness
    if liveness is RunLiveness.NOT_ASKED:
        return RecoveryAction.LEAVE, "Whether its run is alive is not known this time.", None
    if liveness is RunLiveness.ALIVE:
        return RecoveryAction.LEAVE, "Its run is alive.", None
    if liveness is RunLiveness.ALIVE_LATE and case.finding.late_alerted:
        return RecoveryAction.LEAVE, "Its run is alive, later than expected; that was alerted before.", None
    if liveness is RunLiveness.ALIVE_LATE:
        return RecoveryAction.ALERT_LATE, f"{case.item.stage} is alive, later than expected.", None
    return None


def _queued_behind_pause(case: _Case) -> _Ruling | None:
    if case.finding.liveness is not RunLiveness.QUEUED_PAUSED:
        return None
    dag_id = case.finding.run.dag_id if case.finding.run else case.item.dag_id
    return RecoveryAction.SKIP_PAUSED, f"Its run is queued behind the paused DAG {dag_id}: unpause it.", None


def _succeeded_untold(case: _Case) -> _Ruling | None:
    if case.finding.liveness is not RunLiveness.SUCCEEDED_UNTOLD:
        return None
    return (
        RecoveryAction.RECORD_SUCCESS,
        "Airflow says that its run succeeded; the ledger was not told.",
        None,
    )


def _waits_for_dispatcher(case: _Case) -> _Ruling | None:
    if case.item.state is not ItemState.READY:
        return None
    blocked = _blocked(case)
    if blocked is not None:
        return blocked
    why = f" ({case.finding.obstacle.value})" if case.finding.obstacle else ""
    return RecoveryAction.LEAVE, f"Ready: the dispatcher grants it{why}.", None


def _fresh(case: _Case) -> _Ruling | None:
    stale_at = case.item.last_activity_at + case.rules.stale
    if case.now >= stale_at:
        return None
    return RecoveryAction.LEAVE, f"Not stale: its last activity is younger than {case.rules.stale}.", stale_at


def _unconfirmed(case: _Case) -> _Ruling | None:
    if case.finding.liveness is not RunLiveness.UNCONFIRMED:
        return None
    return RecoveryAction.RESEND, "Granted, but Airflow does not have its run: requested again.", None


def _not_retryable(case: _Case) -> _Ruling | None:
    if case.error_class not in NOT_RETRYABLE:  # a class that this version does not know is retryable
        return None
    reason = f"{case.item.stage} failed with {case.error_class}: trying again would not help."
    return RecoveryAction.DEAD_LETTER, reason, None


def _at_the_cap(case: _Case) -> _Ruling | None:
    cap = case.rules.attempts_per_day
    attempts = attempts_today(case.item, now=case.now, timezone=case.finding.timezone)
    if attempts < cap:
        return None
    used = f"{attempts} of {cap} recovery attempts used today ({case.finding.timezone})"
    reason = f"{case.item.stage} failed, {used}."
    return RecoveryAction.DEAD_LETTER, reason, None


def _cooldown(case: _Case) -> _Ruling | None:
    """Elapsed time between instants, so a change to or from summer time neither shortens nor lengthens it."""
    last = case.item.last_attempt_at
    if last is None or case.now >= last + case.rules.cooldown:
        return None
    until = last + case.rules.cooldown
    return RecoveryAction.WAIT_COOLDOWN, f"Attempted at {last.isoformat()}: cools down.", until


def _blocked(case: _Case) -> _Ruling | None:
    """Nothing could run now, so that an attempt would be charged for nothing."""
    stage = f"{case.item.pipeline}.{case.item.stage}"
    if case.finding.obstacle is WaitReason.PAUSED:
        return RecoveryAction.SKIP_PAUSED, f"The DAG {case.item.dag_id} is paused: unpause it.", None
    if case.finding.obstacle is WaitReason.BREAKER:
        return RecoveryAction.SKIP_BREAKER, f"The breaker of {stage} is open.", None
    if case.finding.obstacle is WaitReason.SLOT:
        return RecoveryAction.SKIP_SLOT, f"No slot is free for {stage}.", None
    return None


def _not_admissible(case: _Case) -> _Ruling | None:
    """Hold, budget, window, idle work: the dispatcher would let it wait, so an attempt would buy nothing."""
    if case.finding.obstacle is None:
        return None
    stage = f"{case.item.pipeline}.{case.item.stage}"
    return RecoveryAction.LEAVE, f"{stage} may not start now ({case.finding.obstacle.value}).", None


def _refire(case: _Case) -> _Ruling:
    number = attempts_today(case.item, now=case.now, timezone=case.finding.timezone) + 1
    error = f" after {case.error_class}" if case.error_class else ""
    reason = f"{case.item.stage} runs again{error}: attempt {number} of {case.rules.attempts_per_day} today."
    return RecoveryAction.REFIRE, reason, None


_RULES: Final[tuple[Callable[[_Case], _Ruling | None], ...]] = (
    _ended,
    _excluded,
    _alive,
    _queued_behind_pause,
    _succeeded_untold,
    _waits_for_dispatcher,
    _fresh,
    _unconfirmed,
    _not_retryable,
    _at_the_cap,
    _cooldown,
    _blocked,
    _not_admissible,
)

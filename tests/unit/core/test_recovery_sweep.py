"""The sweep as a whole: exclude list and dry run, the cap over all items, and what people read."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.core.recovery_builders import (
    HOUR,
    NOW,
    an_item,
    failed,
    running,
)

from airflow_relay.core.recovery import (
    ACTING,
    Decision,
    Finding,
    RecoveryAction,
    RecoveryRules,
    RuleSet,
    RunLiveness,
    decide,
    plan_sweep,
    summary,
)
from airflow_relay.core.states import ItemState, WaitReason

# Rules: exclude list and dry run


def test_an_excluded_item_is_left_and_nothing_of_it_is_recorded():
    decision = running(RunLiveness.GONE, rules=RecoveryRules(exclude=frozenset({"article-42"})))
    assert decision.action is RecoveryAction.EXCLUDED
    assert decision.record is None


@pytest.mark.parametrize(
    ("liveness", "would"),
    [
        (RunLiveness.GONE, RecoveryAction.REFIRE),
        (RunLiveness.UNCONFIRMED, RecoveryAction.RESEND),
        (RunLiveness.ALIVE_LATE, RecoveryAction.ALERT_LATE),
        (RunLiveness.SUCCEEDED_UNTOLD, RecoveryAction.RECORD_SUCCESS),
    ],
)
def test_a_dry_run_says_what_it_would_do_and_does_nothing(liveness, would):
    decision = running(liveness, rules=RecoveryRules(dry_run=True))
    assert decision.action is RecoveryAction.DRY_RUN
    assert decision.would is would
    assert decision.record is None
    assert not decision.charges


def test_a_dry_run_writes_no_dead_letter_and_alerts_nobody():
    finding = Finding(item=an_item(error_class="auth"), liveness=RunLiveness.NO_RUN)
    decision = decide(finding, now=NOW, rules=RecoveryRules(dry_run=True))
    assert (decision.action, decision.would) == (RecoveryAction.DRY_RUN, RecoveryAction.DEAD_LETTER)
    assert not decision.escalates


def test_a_dry_run_records_nothing_of_an_item_that_waits_either():
    item = an_item(state=ItemState.RUNNING, last_attempt_at=NOW - HOUR)
    decision = running(RunLiveness.GONE, item=item, rules=RecoveryRules(dry_run=True))
    assert decision.action is RecoveryAction.WAIT_COOLDOWN
    assert decision.record is None


# Rule: 50 refires per sweep, highest stage and oldest first


def stuck(count: int, **changes: Any) -> list[Finding]:
    return [
        Finding(
            item=an_item(**{"id": n, "last_activity_at": NOW - timedelta(days=1, seconds=-n), **changes}),
            liveness=RunLiveness.NO_RUN,
        )
        for n in range(count)
    ]


def refired(decisions: list[Decision]) -> list[int]:
    return [d.item_id for d in decisions if d.action is RecoveryAction.REFIRE]


def test_a_sweep_refires_fifty_items_and_leaves_the_rest_for_the_next():
    decisions = plan_sweep(stuck(2000), now=NOW, rules=RuleSet())
    assert len(refired(decisions)) == 50
    rest = [d for d in decisions if d.action is RecoveryAction.OVER_SWEEP_CAP]
    assert len(rest) == 1950
    assert not any(d.charges for d in rest)


def test_the_oldest_are_refired_first():
    decisions = plan_sweep(reversed(stuck(60)), now=NOW, rules=RuleSet())
    assert refired(decisions) == list(range(50))


def test_the_highest_stage_is_refired_first_even_when_younger():
    young_and_near_the_end = Finding(
        item=an_item(id=999, rank=99, last_activity_at=NOW - 2 * HOUR), liveness=RunLiveness.NO_RUN
    )
    decisions = plan_sweep(
        [*stuck(60, rank=95), young_and_near_the_end], now=NOW, rules=RuleSet(refires_per_sweep=2)
    )
    assert refired(decisions) == [999, 0]


def test_only_refires_count_against_the_cap():
    dead = stuck(10, error_class="auth")
    alive = [Finding(item=an_item(id=100 + n), liveness=RunLiveness.ALIVE) for n in range(10)]
    decisions = plan_sweep([*dead, *alive, *stuck(3)], now=NOW, rules=RuleSet(refires_per_sweep=3))
    assert len(refired(decisions)) == 3
    assert sum(d.action is RecoveryAction.DEAD_LETTER for d in decisions) == 10


def test_a_dry_run_shows_the_cap_as_well():
    rules = RuleSet(default=RecoveryRules(dry_run=True), refires_per_sweep=4)
    decisions = plan_sweep(stuck(6), now=NOW, rules=rules)
    assert sum(d.action is RecoveryAction.DRY_RUN for d in decisions) == 4
    assert sum(d.action is RecoveryAction.OVER_SWEEP_CAP for d in decisions) == 2


def test_each_pipeline_is_swept_by_its_own_rules():
    rules = RuleSet(pipelines={"news": RecoveryRules(attempts_per_day=0)})
    decisions = plan_sweep([*stuck(1), *stuck(1, pipeline="news")], now=NOW, rules=rules)
    assert {d.pipeline: d.action for d in decisions} == {
        "content": RecoveryAction.REFIRE,
        "news": RecoveryAction.DEAD_LETTER,
    }


def test_twenty_items_behind_an_open_breaker_lose_no_attempt():
    waiting = [
        Finding(item=f.item, liveness=RunLiveness.NO_RUN, obstacle=WaitReason.BREAKER) for f in stuck(20)
    ]
    decisions = plan_sweep(waiting, now=NOW, rules=RuleSet())
    assert len(decisions) == 20
    assert not any(d.charges for d in decisions)


def test_two_thousand_stuck_items_are_all_refired_or_dead_after_enough_sweeps():
    items, sweeps = stuck(2000), 0
    while items:
        decisions = plan_sweep(items, now=NOW, rules=RuleSet())
        done = set(refired(decisions))
        assert 0 < len(done) <= 50
        items = [f for f in items if f.item.id not in done]
        sweeps += 1
    assert sweeps == math.ceil(2000 / 50)


# What people and XCom get


def test_the_summary_says_in_one_sentence_what_was_done_and_why_not():
    findings = [
        *stuck(3),
        Finding(item=an_item(id=50), liveness=RunLiveness.ALIVE),
        Finding(item=an_item(id=51, error_class="auth"), liveness=RunLiveness.NO_RUN),
    ]
    text = summary(plan_sweep(findings, now=NOW, rules=RuleSet(refires_per_sweep=2)))
    assert text == (
        "Scanned 5 items: 1 left alone, 2 refired, 1 to the dead letters, 1 left for the next sweep."
    )
    assert summary([]) == "Scanned 0 items: nothing to do."


def test_a_decision_goes_through_xcom():
    for decision in (
        running(RunLiveness.GONE),
        running(RunLiveness.GONE, rules=RecoveryRules(dry_run=True)),
        failed(last_attempt_at=NOW - HOUR),
    ):
        assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


@pytest.mark.parametrize("action", sorted(RecoveryAction))
def test_the_summary_has_words_for_every_action(action):
    decision = Decision(item_id=1, pipeline="p", key="k", stage="s", epoch=1, action=action, reason="because")
    assert summary([decision]).startswith("Scanned 1 item: 1 ")
    if decision.charges or decision.escalates:
        assert action in ACTING

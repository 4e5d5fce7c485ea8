"""No history at all breaks the two promises: the cap per item and day, and the cooldown.

The item moves by the real life cycle; its attempts are counted again by an oracle that keeps every instant.
A redrive by a person opens a new budget, so the cap holds per day and budget; the cooldown holds throughout.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_relay.core import lifecycle
from airflow_relay.core.item import Item, Run, apply
from airflow_relay.core.lifecycle import Completion
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.recovery import (
    Decision,
    Finding,
    RecoveryAction,
    RecoveryRules,
    RuleSet,
    RunLiveness,
    charge,
    decide,
    fresh_budget,
    plan_sweep,
)
from airflow_relay.core.states import EventKind, ItemState, PriorityClass, RunResult, RunState, WaitReason

# Middays before a night in which some of the zones change their clocks, and a usual one.
STARTS = [
    datetime(2026, month, day, 17, tzinfo=timezone.utc)
    for month, day in [(3, 7), (10, 31), (3, 28), (10, 3), (6, 9)]
]
ZONES = ["America/Chicago", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata", "UTC"]

ALIVE = [RunLiveness.ALIVE, RunLiveness.ALIVE_LATE, RunLiveness.QUEUED_PAUSED, RunLiveness.NOT_ASKED]
ENDED_UNTOLD = [RunLiveness.GONE, RunLiveness.FAILED_UNTOLD]


def a_pipeline(zone: str) -> Pipeline:
    return Pipeline(
        "content",
        [
            Stage("research", schedule="0 7 * * *", to="write"),
            Stage("write", to="review", max_visits=40),
            Stage("review", to={"again": "write", "default": END}),
        ],
        timezone=zone,
    )


def open_run(item: Item, at: datetime) -> Run:
    return Run(
        id=item.epoch,
        item_id=item.id,
        pipeline=item.pipeline,
        stage=item.stage,
        visit=item.visit,
        epoch=item.epoch,
        dag_id=item.dag_id,
        run_id=f"run-{item.epoch}",
        ledger_id="ledger-a",
        state=RunState.OPEN,
        klass=PriorityClass.P2,
        granted_at=at,
    )


class AnyHistory(RuleBasedStateMachine):
    @initialize(
        start=st.sampled_from(STARTS),
        zone=st.sampled_from(ZONES),
        cap=st.integers(0, 3),
        cooldown=st.sampled_from([0, 30, 120]),
        stale=st.sampled_from([1, 120]),
    )
    def begin(self, start, zone, cap, cooldown, stale):
        self.now, self.zone = start, zone
        self.rules = RecoveryRules(
            attempts_per_day=cap, cooldown=timedelta(minutes=cooldown), stale=timedelta(minutes=stale)
        )
        self.pipeline = a_pipeline(zone)
        self.item = lifecycle.registered(pipeline=self.pipeline, key="a", priority=0, now=start)[0]
        self.liveness = RunLiveness.NO_RUN
        self.attempts: list[tuple[datetime, int]] = []
        self.budget = 0

    def in_state(self, state: ItemState) -> bool:
        return self.item.state is state

    # The world

    @rule(minutes=st.integers(1, 200) | st.integers(200, 2000))
    def time_passes(self, minutes):
        self.now += timedelta(minutes=minutes)

    @rule()
    def the_item_becomes_stale(self):
        self.now = max(self.now, self.item.last_activity_at + self.rules.stale)

    @rule(minutes=st.integers(1, 2000))
    def the_clock_is_set_back(self, minutes):
        self.now -= timedelta(minutes=minutes)

    def admissible(self) -> bool:
        not_before = self.item.not_before
        return self.in_state(ItemState.READY) and (not_before is None or not_before <= self.now)

    @precondition(lambda self: self.admissible())
    @rule(liveness=st.sampled_from([*ALIVE, RunLiveness.UNCONFIRMED]))
    def the_dispatcher_grants_it(self, liveness):
        fields = {}
        if self.item.recovering:
            fields = charge(self.item, now=self.now, timezone=self.zone)
            self.attempts.append((self.now, self.budget))
        self.item = replace(
            self.item,
            state=ItemState.RUNNING,
            epoch=self.item.epoch + 1,
            not_before=None,
            last_activity_at=self.now,
            **fields,
        )
        self.liveness = liveness

    @precondition(lambda self: self.in_state(ItemState.RUNNING))
    @rule(liveness=st.sampled_from([*ALIVE, *ENDED_UNTOLD]))
    def its_run_goes_on_or_dies_untold(self, liveness):
        self.liveness = liveness

    @precondition(lambda self: self.in_state(ItemState.RUNNING))
    @rule(error_class=st.sampled_from(["timeout", "overloaded", "unknown"]))
    def its_stage_fails(self, error_class):
        self.fail(Completion(result=RunResult.FAILED, error_class=error_class))

    @precondition(lambda self: self.in_state(ItemState.RUNNING))
    @rule(outcome=st.sampled_from(["again", "again", "again", None]))
    def its_stage_completes(self, outcome):
        change = lifecycle.completed(
            self.item,
            pipeline=self.pipeline,
            run=open_run(self.item, self.now),
            completion=Completion(result=RunResult.SUCCESS, outcome=outcome),
            now=self.now,
        )
        self.item, self.liveness = apply(self.item, change), RunLiveness.NO_RUN

    @precondition(lambda self: self.in_state(ItemState.DEAD))
    @rule()
    def a_person_redrives_it(self):
        self.make_ready(EventKind.REDRIVEN, **fresh_budget())
        self.budget += 1

    # Whole rounds, so that histories with many attempts are common

    @precondition(lambda self: self.admissible())
    @rule(completes_first=st.booleans())
    def it_is_granted_fails_and_is_swept_when_stale(self, completes_first):
        if completes_first:
            self.the_dispatcher_grants_it(RunLiveness.ALIVE)
            self.its_stage_completes("again")
        if self.admissible():
            self.the_dispatcher_grants_it(RunLiveness.ALIVE)
            self.its_stage_fails("timeout")
            self.the_item_becomes_stale()
            self.sweeps_run_at_the_same_time(1, None)

    # The sweep

    @rule(
        sweeps=st.integers(1, 2),
        obstacle=st.sampled_from([None, None, None, WaitReason.PAUSED, WaitReason.BREAKER, WaitReason.SLOT]),
    )
    def sweeps_run_at_the_same_time(self, sweeps, obstacle):
        seen = self.item
        plans = [
            plan_sweep([self.finding(obstacle)], now=self.now, rules=RuleSet(default=self.rules))
            for _ in range(sweeps)
        ]
        refired = [self.perform(decision, seen) for (decision,) in plans]
        assert sum(refired) <= 1, "two sweeps made it ready twice"
        if obstacle is not None:
            assert not any(refired), "made ready although its stage may not run"

    def finding(self, obstacle: WaitReason | None) -> Finding:
        run = None if self.liveness is RunLiveness.NO_RUN else open_run(self.item, self.now)
        return Finding(item=self.item, liveness=self.liveness, run=run, obstacle=obstacle, timezone=self.zone)

    def perform(self, decision: Decision, seen: Item) -> bool:
        """As the ledger does: only while the item is as it was when it was decided about."""
        if self.item != seen:
            return False
        if decision.charges or decision.escalates:
            assert seen.state not in (ItemState.DEAD, ItemState.DONE, ItemState.DISCARDED, ItemState.READY)
            assert self.liveness not in ALIVE, "a live run was touched"
        if decision.record is not None:
            self.fail(Completion(result=decision.record, error_class="unknown"))
        if decision.charges:
            change = lifecycle.recovered(self.item, pipeline=self.pipeline, text="again", now=self.now)
            self.item, self.liveness = apply(self.item, change), RunLiveness.NO_RUN
        if decision.escalates:
            self.item = replace(self.item, state=ItemState.DEAD, last_activity_at=self.now)
        return decision.charges

    def fail(self, completion: Completion):
        run = open_run(self.item, self.now)
        change = lifecycle.failed(run=run, completion=completion, retryable=True, now=self.now)
        self.item, self.liveness = apply(self.item, change), RunLiveness.NO_RUN

    def make_ready(self, kind: EventKind, **fields):
        change = lifecycle.ready_again(
            self.item, pipeline=self.pipeline, kind=kind, text="again", now=self.now, **fields
        )
        self.item, self.liveness = apply(self.item, change), RunLiveness.NO_RUN

    # The promises

    @invariant()
    def no_day_of_its_timezone_sees_more_attempts_than_the_cap(self):
        zone = ZoneInfo(self.zone)
        days = Counter((at.astimezone(zone).date(), budget) for at, budget in self.attempts)
        assert all(count <= self.rules.attempts_per_day for count in days.values()), days

    @invariant()
    def no_two_attempts_lie_within_the_cooldown(self):
        for (earlier, _), (later, _) in pairwise(self.attempts):
            assert later - earlier >= self.rules.cooldown

    @invariant()
    def a_failed_item_is_moved_on_in_the_end(self):
        if self.in_state(ItemState.FAILED):
            last = max(self.now, self.item.last_activity_at, self.item.last_attempt_at or self.now)
            decision = decide(self.finding(None), now=last + timedelta(days=1), rules=self.rules)
            assert decision.action in (RecoveryAction.REFIRE, RecoveryAction.DEAD_LETTER)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

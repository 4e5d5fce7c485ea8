"""Each rule of the dispatcher, with a test that fails without it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.core.dispatch_builders import GATES, NOW, P0, P1, P2, P3, WORK, granted, item, snapshot

from airflow_relay.core.dispatch import (
    AGING_STEP,
    BreakerGate,
    aging_bound,
    check_shared_keys,
    dispatch,
    gate,
    order_key,
)
from airflow_relay.core.pipeline import Pipeline, PipelineError, Stage
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, DEFAULT_AIRFLOW_RUNS, WaitReason


class TestWithoutLimits:
    def test_grants_at_once(self):
        plan = dispatch(snapshot(item(1), item(2, "other")), NOW)
        assert granted(plan) == [1, 2]
        assert plan.waiting == {}
        assert plan.reserved == ()

    def test_nothing_ready_gives_an_empty_plan(self):
        plan = dispatch(snapshot(), NOW)
        assert (plan.grants, plan.waiting, plan.reserved, plan.wake_at) == ((), {}, (), None)

    def test_airflow_runs_bounds_all_pipelines_by_default(self):
        full = snapshot(*(item(i) for i in range(100)), usage={AIRFLOW_RUNS_KEY: 10})
        plan = dispatch(full, NOW)
        assert len(plan.grants) == DEFAULT_AIRFLOW_RUNS - 10
        assert plan.waiting == {WORK: WaitReason.SLOT}
        assert plan.why[WORK] == "60 of 60 units of 'airflow.runs' are in use"


class TestOrder:
    """With one free unit the first in order gets it."""

    def first(self, *items):
        return granted(dispatch(snapshot(*items, limits={AIRFLOW_RUNS_KEY: 1}), NOW))

    def test_the_class_comes_first(self):
        assert self.first(item(1, "x", rank=100, waited=50), item(2, klass=P1, rank=1)) == [2]

    def test_then_the_stage_nearest_to_the_end(self):
        assert self.first(item(1, "draft", rank=97, priority=9), item(2, "ship", rank=100)) == [2]

    def test_then_the_items_own_priority(self):
        assert self.first(item(1, waited=1), item(2, priority=1)) == [2]

    def test_then_age(self):
        assert self.first(item(1), item(2, waited=1)) == [2]

    def test_then_the_id_so_that_the_order_is_total(self):
        assert self.first(item(2), item(1)) == [1]

    def test_two_hours_of_waiting_raise_the_rank_by_one(self):
        young, old = item(1, "ship", rank=100), item(2, "qa", rank=99, waited=4)
        assert self.first(young, old) == [2]
        assert self.first(young, item(2, "qa", rank=99, waited=1.99)) == [1]

    def test_aging_beats_the_items_own_priority(self):
        assert self.first(item(1, priority=1000), item(2, waited=2)) == [2]

    def test_a_clock_that_is_behind_makes_no_item_younger_than_new(self):
        assert order_key(item(1, waited=-5), NOW)[1] == order_key(item(1), NOW)[1]

    def test_an_item_that_cannot_run_is_passed_over(self):
        full = snapshot(
            item(1, "ship", rank=100), item(2, "qa", rank=99), limits={"a.ship": 1}, usage={"a.ship": 1}
        )
        plan = dispatch(full, NOW)
        assert granted(plan) == [2]
        assert plan.waiting == {("a", "ship"): WaitReason.SLOT}


class TestLimits:
    def test_a_key_is_never_overdrawn(self):
        full = snapshot(*(item(i) for i in range(9)), limits={"a.work": 4}, usage={"a.work": 1})
        assert granted(dispatch(full, NOW)) == [0, 1, 2]

    def test_a_shared_key_counts_over_pipelines(self):
        items = [item(i, pipeline=p, keys=(f"{p}.work", "agents")) for i, p in enumerate("abc")]
        assert granted(dispatch(snapshot(*items, limits={"agents": 2}), NOW)) == [0, 1]

    def test_an_item_takes_all_its_keys_or_none(self):
        both, single = item(1, keys=("x", "y")), item(2, "other", keys=("y",))
        plan = dispatch(snapshot(both, single, limits={"x": 1, "y": 1}, usage={"x": 1}), NOW)
        assert granted(plan) == [2]

    def test_a_lowered_limit_drains(self):
        full = snapshot(item(1), item(2), limits={"a.work": 2}, usage={"a.work": 5})
        assert granted(dispatch(full, NOW)) == []
        assert dispatch(full, NOW).why[WORK] == "5 of 2 units of 'a.work' are in use"
        drained = snapshot(item(1), item(2), limits={"a.work": 2}, usage={"a.work": 1})
        assert granted(dispatch(drained, NOW)) == [1]

    def test_a_limit_of_0_stops_new_work_and_says_so(self):
        full = snapshot(item(1), limits={"a.work": 0})
        plan = dispatch(full, NOW)
        assert granted(plan) == []
        assert (plan.waiting[WORK], plan.why[WORK]) == (WaitReason.SLOT, "the limit of 'a.work' is 0")

    def test_no_runs_at_all_when_airflow_runs_is_0(self):
        plan = dispatch(snapshot(item(1), limits={AIRFLOW_RUNS_KEY: 0}), NOW)
        assert granted(plan) == []
        assert plan.why[WORK] == "the limit of 'airflow.runs' is 0"


class TestGates:
    @pytest.mark.parametrize(("reason", "how", "words"), GATES)
    def test_stops_its_stage_alone(self, reason, how, words):
        gated, free = item(1), item(2, "work", pipeline="b", klass=P1)
        full = snapshot(gated, free, **how)
        plan = dispatch(full, NOW)
        assert granted(plan) == [2]
        assert plan.waiting == {WORK: reason}
        assert words in plan.why[WORK]
        assert gate(gated, full, NOW) is reason
        assert gate(free, full, NOW) is None

    @pytest.mark.parametrize(("reason", "how", "words"), GATES)
    def test_a_gated_item_holds_no_unit_back(self, reason, how, words):
        gated = item(1, keys=("x", "y"), waited=9)
        full = snapshot(
            gated,
            item(2, keys=("y",), pipeline="b", klass=P2),
            limits={"x": 1, "y": 1},
            usage={"x": 1},
            **how,
        )
        full_plan = dispatch(full, NOW)
        assert full_plan.reserved == ()
        assert granted(full_plan) == ([] if "P2" in full.conditions.holds else [2])

    def test_a_window_that_has_opened_is_no_gate(self):
        assert granted(dispatch(snapshot(item(1), closed_until={WORK: NOW}), NOW)) == [1]

    def test_not_before_holds_one_item_and_not_its_stage(self):
        later = item(1, not_before=NOW + timedelta(minutes=5))
        full = snapshot(later, item(2), item(3, not_before=NOW))
        plan = dispatch(full, NOW)
        assert granted(plan) == [2, 3]
        assert plan.reason(later, NOW) is WaitReason.NOT_BEFORE
        assert plan.wake_at == later.not_before

    def test_the_next_known_wake_time_is_the_earliest(self):
        full = snapshot(
            item(1, not_before=NOW + timedelta(hours=3)),
            item(2, "publish"),
            closed_until={
                ("a", "publish"): NOW + timedelta(hours=2),
                ("a", "nothing_ready"): NOW + AGING_STEP / 4,
            },
        )
        assert dispatch(full, NOW).wake_at == NOW + timedelta(hours=2)


class TestBreakerProbe:
    def test_exactly_one_item_goes_and_it_is_the_first_in_order(self):
        full = snapshot(item(1), item(2, priority=1), item(3), breakers={WORK: BreakerGate.PROBE})
        plan = dispatch(full, NOW)
        assert [(g.item_id, g.probe) for g in plan.grants] == [(2, True)]
        assert plan.waiting == {WORK: WaitReason.BREAKER}
        assert plan.reason(item(1), NOW) is WaitReason.BREAKER

    def test_one_probe_for_each_stage(self):
        other = ("a", "other")
        full = snapshot(
            item(1), item(2, "other"), breakers={WORK: BreakerGate.PROBE, other: BreakerGate.PROBE}
        )
        assert granted(dispatch(full, NOW)) == [1, 2]

    def test_an_ordinary_grant_is_no_probe(self):
        assert not dispatch(snapshot(item(1)), NOW).grants[0].probe

    def test_closing_drains_in_priority_order(self):
        items = [item(i, priority=i) for i in range(20)]
        full = snapshot(*items, limits={"a.work": 3}, breakers={WORK: BreakerGate.CLOSED})
        assert granted(dispatch(full, NOW)) == [19, 18, 17]


class TestIdleWork:
    IDLE = item(9, pipeline="games", klass=P3)

    def plan(self, *items, **more):
        return dispatch(snapshot(self.IDLE, *items, **more), NOW)

    def test_runs_when_nothing_else_is_there(self):
        assert granted(self.plan()) == [9]

    def test_waits_while_p2_runs(self):
        plan = self.plan(active_classes={P2: 1})
        assert granted(plan) == []
        assert plan.waiting == {("games", "work"): WaitReason.IDLE}

    def test_waits_beside_p2_work_that_is_granted_in_the_same_decision(self):
        assert granted(self.plan(item(1))) == [1]

    def test_waits_while_p2_waits_only_for_a_slot(self):
        plan = self.plan(item(1), limits={"a.work": 1}, usage={"a.work": 1})
        assert plan.waiting == {("games", "work"): WaitReason.IDLE, WORK: WaitReason.SLOT}

    def test_waits_for_p2_work_that_is_counted_but_not_loaded(self):
        full = snapshot(self.IDLE, item(1), limits={"a.work": 1}, usage={"a.work": 1})
        assert granted(dispatch(full.with_candidates([self.IDLE]), NOW)) == []

    @pytest.mark.parametrize(("reason", "how", "words"), GATES)
    def test_gated_p2_work_does_not_stop_it(self, reason, how, words):
        assert granted(self.plan(item(1), **how)) == [9]

    def test_nor_does_p2_work_with_a_not_before(self):
        assert granted(self.plan(item(1, not_before=NOW + timedelta(hours=1)))) == [9]

    def test_nor_p2_work_whose_limit_a_person_has_set_to_0(self):
        assert granted(self.plan(item(1), limits={"a.work": 0})) == [9]

    def test_light_p1_work_does_not_stop_it_but_real_time_work_does(self):
        assert granted(self.plan(active_classes={P1: 3})) == [9]
        assert granted(self.plan(active_classes={P0: 1})) == []

    def test_is_not_preempted_and_does_not_hold_up_p2(self):
        assert granted(dispatch(snapshot(item(1), active_classes={P3: 5}), NOW)) == [1]

    def test_other_p3_work_does_not_stop_it(self):
        assert granted(self.plan(active_classes={P3: 2})) == [9]


def test_the_aging_bound_grows_with_the_distance_of_ranks_and_the_work_ahead():
    run = timedelta(minutes=30)
    assert aging_bound(rank=96, highest_rank=100, ahead=3, longest_run=run) == 6 * AGING_STEP + 4 * run
    assert aging_bound(rank=100, highest_rank=96, ahead=0, longest_run=run) == 2 * AGING_STEP + run


class TestSharedKeys:
    def pipeline(self, name, klass, *, key="agents", limits=None):
        stage = Stage("work", schedule="0 7 * * *", keys=(key,))
        return Pipeline(name, stages=[stage], klass=klass, limits=limits or {})

    def test_idle_work_may_not_share_a_limited_key_with_p2(self):
        pipelines = [self.pipeline("news", P2, limits={"agents": 4}), self.pipeline("games", P3)]
        with pytest.raises(
            PipelineError, match=r"'games' .P3. shares the limited key 'agents' with 'news' .P2."
        ):
            check_shared_keys(pipelines)

    def test_a_limit_that_only_the_variable_sets_counts(self):
        pipelines = [self.pipeline("news", P2), self.pipeline("games", P3)]
        check_shared_keys(pipelines)
        with pytest.raises(PipelineError, match="agents"):
            check_shared_keys(pipelines, {"agents": 4})

    def test_a_stage_key_of_another_pipeline_counts(self):
        urgent = Pipeline("news", stages=[Stage("work", schedule="0 7 * * *", limit=1)])
        with pytest.raises(PipelineError, match=r"news\.work"):
            check_shared_keys([urgent, self.pipeline("games", P3, key="news.work")])

    def test_idle_pipelines_may_share_among_themselves_and_urgent_ones_too(self):
        limits = {"agents": 4}
        check_shared_keys([self.pipeline("x", P3, limits=limits), self.pipeline("y", P3, limits=limits)])
        check_shared_keys([self.pipeline("x", P2, limits=limits), self.pipeline("y", P1, limits=limits)])

    def test_another_key_is_no_problem(self):
        check_shared_keys(
            [
                self.pipeline("news", P2, limits={"agents": 4}),
                self.pipeline("games", P3, key="toys", limits={"toys": 1}),
            ]
        )

"""How much the ledger must load for a decision, and what it tells people about an item."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.core.dispatch_builders import (
    GATES,
    NOW,
    P2,
    P3,
    WORK,
    as_a_ledger_loads,
    granted,
    groups_of,
    item,
    snapshot,
)

from airflow_relay.core.dispatch import BreakerGate, dispatch, explain, wanted
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, WaitReason


class TestWanted:
    def group(self, count=10_000, *, keys=("a.work",), waited=0, **more):
        (found,) = groups_of([item(1, keys=keys, waited=waited, **more)])
        return replace(found, count=count)

    def test_is_bounded_by_what_is_free(self):
        assert wanted(self.group(), snapshot(limits={"a.work": 4}, usage={"a.work": 1}), NOW) == 3
        assert wanted(self.group(), snapshot(usage={AIRFLOW_RUNS_KEY: 20}), NOW) == 40
        assert wanted(self.group(count=2), snapshot(), NOW) == 2

    def test_is_0_while_a_lowered_limit_drains(self):
        assert wanted(self.group(), snapshot(limits={"a.work": 1}, usage={"a.work": 3}), NOW) == 0

    def test_is_0_when_nothing_is_free_or_ready(self):
        assert wanted(self.group(), snapshot(limits={"a.work": 1}, usage={"a.work": 1}), NOW) == 0
        assert (
            wanted(self.group(count=0, keys=("x", "y"), waited=5), snapshot(limits={"x": 1, "y": 1}), NOW)
            == 0
        )

    def test_an_aged_item_of_several_keys_is_seen_so_that_it_can_reserve(self):
        some = snapshot(limits={"x": 2, "y": 3}, usage={"x": 1})
        assert wanted(self.group(keys=("x", "y"), waited=2), some, NOW) == 2
        assert wanted(self.group(keys=("x", "y"), waited=2, count=1), some, NOW) == 1
        full = snapshot(limits={"x": 1, "y": 1}, usage={"x": 1})
        assert wanted(self.group(keys=("x", "y"), waited=2), full, NOW) == 1
        assert wanted(self.group(keys=("x", "y"), waited=1), full, NOW) == 0
        assert wanted(self.group(keys=("x", "free"), waited=2), full, NOW) == 0

    def test_nothing_is_seen_when_no_run_is_free(self):
        full = snapshot(limits={"x": 1, "y": 1, AIRFLOW_RUNS_KEY: 1}, usage={AIRFLOW_RUNS_KEY: 1})
        assert wanted(self.group(keys=("x", "y"), waited=9), full, NOW) == 0

    @pytest.mark.parametrize(("reason", "how", "words"), GATES)
    def test_a_gated_group_is_not_loaded(self, reason, how, words):
        assert wanted(self.group(), snapshot(**how), NOW) == 0

    def test_one_probe(self):
        assert wanted(self.group(), snapshot(breakers={WORK: BreakerGate.PROBE}), NOW) == 1

    def test_idle_work_is_not_loaded_beside_p2(self):
        assert wanted(self.group(klass=P3), snapshot(active_classes={P2: 1}), NOW) == 0

    def test_loading_what_is_wanted_decides_as_loading_everything(self):
        items = [
            item(
                i, f"s{i % 5}", rank=96 + i % 5, keys=(f"a.s{i % 5}", "agents"), waited=i % 11, priority=i % 3
            )
            for i in range(200)
        ]
        full = snapshot(*items, limits={"agents": 7, "a.s4": 2, "a.s3": 1}, usage={"a.s3": 1, "agents": 1})
        small = as_a_ledger_loads(full)
        assert len(small.candidates) < 40
        assert granted(dispatch(small, NOW)) == granted(dispatch(full, NOW))
        assert dispatch(small, NOW).waiting == dispatch(full, NOW).waiting


class TestExplain:
    def test_says_next_for_what_the_next_dispatch_grants(self):
        assert explain(item(1), snapshot(item(1)), NOW) is WaitReason.NEXT

    def test_says_slot_for_what_is_behind_in_a_full_stage(self):
        full = snapshot(item(1), item(2), limits={"a.work": 1})
        assert explain(item(2), full, NOW) is WaitReason.SLOT

    def test_an_item_that_is_not_loaded_has_the_reason_of_its_stage(self):
        full = snapshot(item(1), item(2), breakers={WORK: BreakerGate.OPEN})
        assert explain(item(2), full.with_candidates(()), NOW) is WaitReason.BREAKER

    def test_says_not_before_whatever_else_holds(self):
        later = item(1, not_before=NOW + timedelta(seconds=1))
        assert (
            explain(later, snapshot(later, breakers={WORK: BreakerGate.OPEN}), NOW) is WaitReason.NOT_BEFORE
        )

    def test_a_grant_says_why_it_came_first(self):
        full = snapshot(item(1, waited=5, rank=98, priority=2), breakers={WORK: BreakerGate.PROBE})
        assert (
            dispatch(full, NOW).grants[0].reason
            == "P2, rank 98 + 2 for waiting, priority 2; the breaker's probe"
        )

    def test_ready_items_that_are_merely_not_loaded_are_next(self):
        plan = dispatch(snapshot(item(1), item(2)).with_candidates([item(1)]), NOW)
        assert plan.waiting == {WORK: WaitReason.NEXT}

    def test_candidates_without_a_group_are_explained_as_well(self):
        full = snapshot(item(1), item(2), limits={"a.work": 1})
        alone = type(full)(candidates=full.candidates, limits=full.limits)
        assert dispatch(alone, NOW).waiting == {WORK: WaitReason.SLOT}

    def test_a_stage_whose_items_are_stored_with_two_sets_of_keys_is_counted_as_one(self):
        """After a deploy, ready items may still carry the keys of the old declaration."""
        full = snapshot(item(1), item(2, keys=("a.work", "x")), item(3), limits={AIRFLOW_RUNS_KEY: 2})
        assert dispatch(full, NOW).waiting == {WORK: WaitReason.SLOT}

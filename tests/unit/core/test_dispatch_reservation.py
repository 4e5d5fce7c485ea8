"""An aged item that needs several keys gets them, and nothing idles for it without need."""

from __future__ import annotations

from tests.unit.core.dispatch_builders import NOW, granted, item, snapshot

from airflow_relay.core.dispatch import Conditions, dispatch
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass


class TestReservation:
    """Item 1 needs x and y; x is taken, y is free, and item 2 wants y alone."""

    def plan(self, *items, usage=None, **more):
        limits = more.pop("limits", {"x": 1, "y": 1})
        return dispatch(snapshot(*items, limits=limits, usage=usage or {"x": 1}, **more), NOW)

    def test_an_aged_item_holds_back_what_is_ordered_after_it(self):
        plan = self.plan(item(1, keys=("x", "y"), waited=2), item(2, "single", keys=("y",)))
        assert granted(plan) == []
        assert [(r.item_id, r.key) for r in plan.reserved] == [(1, "y")]
        assert plan.reserved[0].reason == "held back for item 1, which waits for x"
        assert plan.why[("a", "single")] == (
            "0 of 1 units of 'y' are in use, 1 reserved for items that have waited long"
        )

    def test_a_younger_item_does_not(self):
        plan = self.plan(item(1, keys=("x", "y"), waited=1.99), item(2, "single", keys=("y",)))
        assert granted(plan) == [2]

    def test_nor_does_a_younger_item_behind_an_aged_one_of_its_stage_that_could_run(self):
        aged, young = item(1, keys=("x", "y"), waited=2), item(2, keys=("x", "y"), waited=1)
        plan = self.plan(aged, young, item(3, "single", keys=("y",)), limits={"x": 2, "y": 2})
        assert granted(plan) == [1, 3]

    def test_an_item_behind_a_gate_leaves_the_right_to_reserve_to_others(self):
        gated = item(1, "gated", keys=("x", "y"), waited=9)
        free = item(2, "free", keys=("x", "z"), waited=3)
        paused = Conditions(paused_dags=frozenset({"a__gated"}))
        plan = self.plan(gated, free, limits={"x": 1, "y": 1, "z": 1}, conditions=paused)
        assert [(r.item_id, r.key) for r in plan.reserved] == [(2, "z")]

    def test_a_higher_class_has_the_right_to_reserve_first(self):
        lower = item(1, "lower", keys=("x", "y"), waited=9)
        higher = item(2, "higher", keys=("x", "z"), waited=3, klass=PriorityClass.P1)
        plan = self.plan(lower, higher, limits={"x": 1, "y": 1, "z": 1})
        assert [(r.item_id, r.key) for r in plan.reserved] == [(2, "z")]

    def test_it_does_not_hold_back_what_is_ordered_before_it(self):
        plan = self.plan(item(1, keys=("x", "y"), waited=2), item(2, "single", keys=("y",), rank=102))
        assert granted(plan) == [2]

    def test_it_holds_one_unit_of_each_free_key(self):
        aged = item(1, keys=("x", "y", "z"), waited=2)
        others = [item(i, "single", keys=("y",)) for i in (2, 3)]
        plan = self.plan(aged, *others, limits={"x": 1, "y": 2, "z": 1})
        assert granted(plan) == [2]
        assert [r.key for r in plan.reserved] == ["y", "z"]

    def test_it_takes_its_units_as_soon_as_all_are_free(self):
        plan = self.plan(item(1, keys=("x", "y"), waited=2), item(2, "s", keys=("y",)), usage={"w": 1})
        assert granted(plan) == [1]

    def test_without_it_units_that_never_come_free_together_would_starve_the_item(self):
        """x and y each pass from one single-key item to the next, never both at once."""
        aged, singles = (
            item(1, keys=("x", "y"), waited=2),
            [item(2, "sx", keys=("x",)), item(3, "sy", keys=("y",))],
        )
        y_came_free = self.plan(aged, *singles, usage={"x": 1})
        assert granted(y_came_free) == []
        then_x_came_free = self.plan(aged, *singles, usage={"x": 0, "y": 0})
        assert granted(then_x_came_free) == [1]

    def test_two_aged_items_do_not_wait_for_each_other(self):
        one = item(1, "p", keys=("x", "y"), waited=3)
        two = item(2, "q", keys=("y", "x"), waited=2)
        plan = self.plan(one, two)
        assert {r.item_id for r in plan.reserved} == {1}
        assert granted(self.plan(one, two, usage={"w": 0})) == [1]

    def test_only_the_first_that_waits_for_a_key_reserves(self):
        queue = [item(i, keys=("x", "y"), waited=9 - i) for i in range(3)]
        plan = self.plan(*queue, item(7, "single", keys=("y",)), limits={"x": 1, "y": 3})
        assert [(r.item_id, r.key) for r in plan.reserved] == [(0, "y")]
        assert granted(plan) == [7]

    def test_another_key_has_a_reservation_of_its_own(self):
        one, two = item(1, "p", keys=("x", "y"), waited=3), item(2, "q", keys=("v", "w"), waited=3)
        plan = self.plan(one, two, limits={"x": 1, "y": 1, "v": 1, "w": 1}, usage={"x": 1, "v": 1})
        assert [(r.item_id, r.key) for r in plan.reserved] == [(1, "y"), (2, "w")]

    def test_one_limited_key_reserves_nothing(self):
        plan = self.plan(item(1, keys=("x", "free"), waited=9), item(2, "s", keys=("free",)))
        assert plan.reserved == ()
        assert granted(plan) == [2]

    def test_the_last_unit_of_airflow_runs_is_not_held_back_either(self):
        full = snapshot(
            item(1, waited=9),
            item(2, "fresh"),
            limits={"a.work": 1, AIRFLOW_RUNS_KEY: 2},
            usage={"a.work": 1, AIRFLOW_RUNS_KEY: 1},
        )
        assert granted(dispatch(full, NOW)) == [2]

    def test_the_right_to_reserve_does_not_swing_with_the_steps_of_aging(self):
        """By full steps item 2 is first for a while; the older item 1 keeps what is held for it."""
        older = item(1, "old", keys=("x", "y"), waited=3.9, rank=100)
        newer = item(2, "new", keys=("x", "z"), waited=2.1, rank=100, priority=1)
        singles = [item(8, "sy", keys=("y",)), item(9, "sz", keys=("z",))]
        plan = self.plan(older, newer, *singles, limits={"x": 1, "y": 1, "z": 1})
        assert [(r.item_id, r.key) for r in plan.reserved] == [(1, "y")]
        assert granted(plan) == [9]

    def test_an_aged_item_that_needs_one_key_is_not_held_up_by_one_behind_it(self):
        """The older single item is behind by its priority alone, so the other may not reserve its key."""
        single = item(1, "single", keys=("y",), waited=3.9)
        several = item(2, "several", keys=("x", "y"), waited=2.1, priority=1)
        assert granted(self.plan(single, several)) == [1]

    def test_airflow_runs_is_not_held_back_since_every_run_that_ends_frees_one(self):
        waiting = [item(i, pipeline=f"p{i}", waited=9) for i in range(50)]
        limits = {f"p{i}.work": 1 for i in range(50)}
        full = snapshot(*waiting, item(99, "fresh"), limits=limits, usage={**limits, AIRFLOW_RUNS_KEY: 50})
        assert granted(dispatch(full, NOW)) == [99]

    def test_a_unit_that_the_blocking_runs_bring_along_is_not_held_back(self):
        """One critique at a time, and each critique holds an agent: the agents need not idle meanwhile."""
        aged = item(1, "critique", keys=("critique", "agents"), waited=5)
        draft = item(2, "draft", keys=("agents",))
        now = {"limits": {"critique": 1, "agents": 4}, "usage": {"critique": 1, "agents": 3}}
        bring_along = [("critique", "agents"), ("agents",), ("agents",)]
        assert granted(dispatch(snapshot(aged, draft, running=bring_along, **now), NOW)) == [2]

        elsewhere = [("critique",), ("agents",), ("agents",), ("agents",)]
        assert granted(dispatch(snapshot(aged, draft, running=elsewhere, **now), NOW)) == []

    def test_runs_that_are_not_all_known_do_not_spare_a_reservation(self):
        aged, draft = item(1, keys=("x", "y"), waited=5), item(2, "d", keys=("y",))
        full = snapshot(aged, draft, limits={"x": 2, "y": 9}, usage={"x": 2, "y": 8}, running=[("x", "y")])
        assert [r.key for r in dispatch(full, NOW).reserved] == ["y"]

    def test_a_grant_of_the_same_decision_counts_as_a_run_that_blocks(self):
        first = item(1, keys=("x", "y"), waited=6)
        second = item(2, keys=("x", "y"), waited=5)
        plan = self.plan(first, second, item(3, "s", keys=("y",)), limits={"x": 1, "y": 2}, usage={"w": 0})
        assert granted(plan) == [1, 3]

    def test_a_limit_of_0_reserves_nothing(self):
        plan = self.plan(
            item(1, keys=("x", "y"), waited=9),
            item(2, "s", keys=("y",)),
            limits={"x": 0, "y": 1},
            usage={"w": 0},
        )
        assert granted(plan) == [2]

"""Three publications with forty items each, by recorded phase times, on four shared agents."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from tests.unit.core.data import newsroom_phase_times
from tests.unit.core.dispatch_builders import NOW, P2, P3, granted, item, units_held
from tests.unit.core.dispatch_simulation import Decision, Granted, Simulation

from airflow_relay.core.dispatch import (
    AGING_STEP,
    BreakerGate,
    Candidate,
    Conditions,
    aging_bound,
    order_key,
)
from airflow_relay.core.states import AIRFLOW_RUNS_KEY

TRACE = Path(__file__).parent / "data" / "newsroom_phase_times.csv"
RANKS = {"research": 96, "draft": 97, "critique": 98, "qa": 99, "ship": 100}
SHARED = {"critique": ("critique", "agents")}  # one critique at a time, for all publications
STAGE_LIMITS = {"research": 3, "draft": 2, "critique": 1}
LIMITS = {
    "agents": 4,
    "critique": 1,
    "games.play": 1,
    **{f"{p}.{s}": n for p in newsroom_phase_times.PUBLICATIONS for s, n in STAGE_LIMITS.items()},
}
TIMEOUT = timedelta(minutes=newsroom_phase_times.TIMEOUT)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def trace() -> Iterator[tuple[str, float, list[tuple[str, float]]]]:
    """(publication, minute of arrival, [(phase, minutes), …]) for each item."""
    with TRACE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for (publication, _), visits in groupby(rows, key=lambda r: (r["publication"], r["item"])):
        path = list(visits)
        yield publication, float(path[0]["arrives"]), [(r["phase"], float(r["minutes"])) for r in path]


def stage(publication: str, phase: str) -> Candidate:
    keys = (f"{publication}.{phase}", *SHARED.get(phase, ("agents",)))
    return item(0, phase, pipeline=publication, rank=RANKS[phase], keys=keys, klass=P2)


def newsroom(*, stretch: float = 1, tell_runs: bool = True) -> Simulation:
    """The whole trace, its arrivals stretched in time, beside idle work that is always ready."""
    world = Simulation(start=NOW, limits=dict(LIMITS), tell_runs=tell_runs)

    def follow(publication: str, path: list[tuple[str, float]]) -> None:
        if path:
            (phase, duration), *rest = path
            world.ready(stage(publication, phase), duration, partial(follow, publication, rest))

    for publication, arrives, path in trace():
        world.at(NOW + minutes(30 + arrives * stretch), partial(follow, publication, path))

    def play() -> None:
        if world.now < NOW + timedelta(days=4):
            game = item(0, "play", pipeline="games", klass=P3, rank=100, keys=("games.play",))
            world.ready(game, 7, play)

    world.at(NOW, play)
    return world


class Judge:
    """Checks each decision by its own reckoning, not by the dispatcher's."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.reserved = self.busiest = self.idle_grants = 0
        world.checks.append(self.look)

    def stopped(self, candidate: Candidate, decision: Decision) -> bool:
        """Whether a gate stops it: hold, pause, breaker, and P2 for idle work."""
        conditions, stage_key = self.world.conditions, (candidate.pipeline, candidate.stage)
        breaker = self.world.breakers.get(stage_key)
        probed = any((g.pipeline, g.stage) == stage_key for g in decision.plan.grants)
        return (
            candidate.klass.value in conditions.holds
            or candidate.dag_id in conditions.paused_dags
            or breaker is BreakerGate.OPEN
            or (breaker is BreakerGate.PROBE and probed)
            or (candidate.klass is P3 and self.p2_has_work(decision))
        )

    def p2_has_work(self, decision: Decision) -> bool:
        running = any(c.klass is P2 for c in decision.running.values())
        waiting = [c for c in decision.waiting.values() if c.klass is P2]
        return running or any(not self.stopped(c, decision) for c in waiting)

    def look(self, decision: Decision) -> None:
        chosen = [decision.waiting[number] for number in granted(decision.plan)]
        left = [c for n, c in decision.waiting.items() if n not in set(granted(decision.plan))]
        used = Counter(decision.before)
        used.update(key for c in chosen for key in (*c.keys, AIRFLOW_RUNS_KEY))
        free = {key: limit - used[key] for key, limit in self.world.limits.items()}
        for key, limit in self.world.limits.items():
            assert used[key] <= max(limit, decision.before[key]), f"{key} is overdrawn"
        able = [c for c in left if not self.stopped(c, decision)]
        self.no_idle_slot(able, free, decision)
        self.order(chosen, able, free, decision)
        for candidate in chosen:
            assert candidate.klass is P2 or not self.p2_has_work(decision), "P3 beside P2"
        self.reserved += bool(decision.plan.reserved)
        self.busiest = max(self.busiest, used["agents"])
        self.idle_grants += sum(c.klass is P3 for c in chosen)

    def no_idle_slot(self, able: list[Candidate], free: dict[str, int], decision: Decision) -> None:
        held = units_held(decision.plan)
        for candidate in able:
            assert any(free.get(key, 1) - held[key] <= 0 for key in candidate.keys), "a slot idles"

    def order(self, chosen: list[Candidate], able: list[Candidate], free: dict[str, int], decision: Decision):
        """No item that waits could have run in the place of one that is ordered after it."""
        rank = lambda c: order_key(c, decision.now)  # noqa: E731
        reserved = [(decision.waiting[r.item_id], r.key) for r in decision.plan.reserved]
        for candidate in able:
            held = Counter(key for holder, key in reserved if rank(holder) < rank(candidate))
            for other in chosen:
                if rank(candidate) < rank(other):
                    room = [free.get(k, 1) - held[k] + (k in other.keys) for k in candidate.keys]
                    assert min(room) <= 0, f"{other} went before {candidate}"


def wait(visit: Granted) -> timedelta:
    return visit.at - visit.candidate.ready_since


def may_pass(other: Candidate, waiting: Candidate) -> bool:
    """Whether ``other`` can ever be ordered before ``waiting``, by its rank and the time of its readiness."""
    return other.ready_since < waiting.ready_since + AGING_STEP * (other.rank - waiting.rank + 1)


def assert_aging_bound_holds(history: list[Granted], longest_run: timedelta) -> None:
    """No visit waits longer than the bound, and the steps of its proof hold for each visit."""
    highest = max(v.candidate.rank for v in history)
    for visit in history:
        candidate = visit.candidate
        settled = candidate.ready_since + AGING_STEP * (highest - candidate.rank + 1)
        ahead = [
            v
            for v in history
            if v is not visit
            and v.at >= settled
            and v.candidate.ready_since <= settled
            and may_pass(v.candidate, candidate)
        ]
        bound = aging_bound(
            rank=candidate.rank, highest_rank=highest, ahead=len(ahead), longest_run=longest_run
        )
        assert wait(visit) <= bound
        steps = sorted({settled + AGING_STEP, visit.at, *(v.at for v in ahead)})
        steps = [at for at in steps if settled + AGING_STEP <= at <= visit.at]
        assert all(later - earlier <= longest_run for earlier, later in pairwise(steps))


@pytest.mark.parametrize("tell_runs", [True, False], ids=["runs told", "runs not told"])
@pytest.mark.parametrize("stretch", [1, 3], ids=["overload", "with pauses"])
def test_the_newsroom_keeps_every_rule_at_every_instant(stretch, tell_runs):
    world = newsroom(stretch=stretch, tell_runs=tell_runs)
    judge = Judge(world)
    world.run()

    articles = [v for v in world.history if v.candidate.klass is P2]
    assert len(articles) == sum(len(path) for _, _, path in trace())
    assert not world.waiting
    assert not world.running
    assert judge.busiest == LIMITS["agents"], "the shared key was binding"
    assert judge.idle_grants > 10
    assert_aging_bound_holds(articles, TIMEOUT)


def test_overload_makes_items_wait_long_enough_for_aging_and_reservations_to_matter():
    world = newsroom(tell_runs=False)
    judge = Judge(world)
    world.run()
    waits = [wait(v) for v in world.history if v.candidate.klass is P2]
    assert max(waits) > 4 * AGING_STEP
    assert judge.reserved > 0


def test_holds_pauses_breakers_and_changed_limits_in_the_middle_of_it():
    world = newsroom(stretch=2)
    judge = Judge(world)
    draft = ("herald", "draft")
    seen = Counter[str]()

    def change(**settings) -> None:
        for name, value in settings.items():
            setattr(world, name, value)

    def count(decision: Decision) -> None:
        seen["probes"] += sum(g.probe for g in decision.plan.grants)
        seen["drained"] += decision.before["agents"] > world.limits["agents"]
        seen["p3 in the hold"] += bool(world.conditions.holds) and any(
            g.pipeline == "games" for g in decision.plan.grants
        )

    world.checks.append(count)
    paused = Conditions(paused_dags=frozenset({"gazette__critique"}))
    for hour, settings in {
        3: {"conditions": Conditions(holds={"P2": "a person talks"})},
        9: {"conditions": Conditions()},
        10: {"limits": {**LIMITS, "agents": 1}},
        12: {"limits": {**LIMITS, "agents": 6}},
        15: {"breakers": {draft: BreakerGate.OPEN}},
        18: {"breakers": {draft: BreakerGate.PROBE}},
        18.001: {"breakers": {draft: BreakerGate.OPEN}},  # the probe runs: the ledger lets no second one go
        19: {"breakers": {}},
        20: {"conditions": paused},
        24: {"conditions": Conditions()},
    }.items():
        world.at(NOW + timedelta(hours=hour), partial(change, **settings))
    world.run()

    assert not world.waiting
    assert judge.busiest == 6
    assert seen["probes"] == 1
    assert seen["drained"] > 0
    assert seen["p3 in the hold"] > 0


class TestStarvation:
    """Two keys that never come free together, full of work that is nearer to the end."""

    def world(self) -> tuple[Simulation, Candidate]:
        world = Simulation(start=NOW, limits={"x": 1, "y": 1})

        def again(key: str) -> None:
            world.ready(item(0, key, rank=100, keys=(key,)), 30, partial(again, key))

        for key, offset in (("x", 0), ("x", 1), ("y", 15), ("y", 16)):
            world.at(NOW + minutes(offset), partial(again, key))
        return world, item(0, "both", rank=96, keys=("x", "y"))

    def test_an_item_that_needs_both_waits_no_longer_than_the_bound(self):
        world, both = self.world()
        world.at(NOW + minutes(20), partial(world.ready, both, 5))
        world.run(until=NOW + timedelta(days=3))
        (visit,) = [v for v in world.history if v.candidate.stage == "both"]
        # Ahead of it at the end: of each key the one that waits and the one that comes next.
        bound = aging_bound(rank=96, highest_rank=100, ahead=4, longest_run=minutes(30))
        assert AGING_STEP * 4 <= wait(visit) <= bound

    def test_without_aging_it_would_wait_for_ever(self):
        """The same work, but the item is as new at each decision."""
        world, both = self.world()

        def stay_young(decision: Decision) -> None:
            for number, candidate in world.waiting.items():
                if candidate.stage == "both":
                    world.waiting[number] = replace(candidate, ready_since=decision.now)

        world.checks.append(stay_young)
        world.at(NOW + minutes(20), partial(world.ready, both, 5))
        world.run(until=NOW + timedelta(days=3))
        assert [c.stage for c in world.waiting.values()].count("both") == 1


def test_the_recorded_phase_times_can_be_made_again():
    made = io.StringIO()
    newsroom_phase_times.write(made)
    assert made.getvalue() == TRACE.read_text()

"""What holds of every decision, whatever the snapshot."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import hypothesis.strategies as st
from hypothesis import event, given, settings
from tests.unit.core.dispatch_builders import (
    NOW,
    P2,
    P3,
    as_a_ledger_loads,
    granted,
    groups_of,
    item,
    units_held,
)

from airflow_relay.core.dispatch import (
    STOPS_IDLE,
    BreakerGate,
    Candidate,
    Conditions,
    Plan,
    Snapshot,
    age,
    dispatch,
    gate,
    order_key,
)
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass, WaitReason

PIPELINES, STAGES, SHARED = ("a", "b", "c"), ("draft", "ship"), ("agents", "gpu", "editors")


@st.composite
def shapes(draw):
    """Stages as a deployment declares them: class, rank and keys belong to the stage."""
    found = {}
    for pipeline in PIPELINES:
        klass = draw(st.sampled_from(list(PriorityClass)))
        for rank, stage in enumerate(STAGES, start=97):
            keys = draw(st.lists(st.sampled_from(SHARED), unique=True, max_size=3))
            found[pipeline, stage] = {
                "klass": klass,
                "rank": rank,
                "keys": (f"{pipeline}.{stage}", *keys),
                "pipeline": pipeline,
            }
    return found


@st.composite
def candidates(draw, stages):
    hours = st.one_of(st.floats(0, 1.9), st.floats(0, 12))
    found = []
    for number in range(draw(st.integers(0, 14))):
        (_, stage), shape = draw(st.sampled_from(sorted(stages.items(), key=lambda s: s[0])))
        not_before = draw(
            st.sampled_from([None, None, None, timedelta(hours=-1), timedelta(0), timedelta(hours=1)])
        )
        found.append(
            item(
                number,
                stage,
                waited=draw(hours),
                priority=draw(st.integers(-2, 2)),
                not_before=None if not_before is None else NOW + not_before,
                **shape,
            )
        )
    return found


@st.composite
def snapshots(draw):
    stages = draw(shapes())
    items = draw(candidates(stages))
    keys = sorted({k for shape in stages.values() for k in shape["keys"]} | {AIRFLOW_RUNS_KEY})
    limits = draw(st.dictionaries(st.sampled_from(keys), st.integers(0, 4)))
    running = draw(st.lists(st.sampled_from([shape["keys"] for shape in stages.values()]), max_size=4))
    usage = Counter(key for keys_of_run in running for key in (*keys_of_run, AIRFLOW_RUNS_KEY))
    few = lambda names: st.frozensets(st.sampled_from(names), max_size=1)  # noqa: E731
    holds = draw(few([*PIPELINES, "P2", "P3"]))
    closed = draw(few(sorted(stages)))
    return Snapshot(
        candidates=draw(st.permutations(items)),
        groups=groups_of(items),
        usage=usage,
        limits=limits,
        conditions=Conditions(
            holds=dict.fromkeys(holds, "because"),
            paused_dags=draw(few([f"{p}__{s}" for p, s in stages])),
            over_budget=draw(few(PIPELINES)),
        ),
        breakers=draw(
            st.dictionaries(st.sampled_from(sorted(stages)), st.sampled_from(BreakerGate), max_size=2)
        ),
        active_classes=draw(st.dictionaries(st.sampled_from(PriorityClass), st.integers(0, 1), max_size=1)),
        closed_until={stage: NOW + timedelta(minutes=draw(st.integers(-5, 5))) for stage in closed},
        running=draw(st.sampled_from([running, running[1:], []])),
    )


def needs(candidate: Candidate) -> tuple[str, ...]:
    return (*candidate.keys, AIRFLOW_RUNS_KEY)


def used_after(snapshot: Snapshot, plan: Plan) -> Counter[str]:
    by_id = {c.item_id: c for c in snapshot.candidates}
    used = Counter(snapshot.usage)
    used.update(key for number in granted(plan) for key in needs(by_id[number]))
    return used


def free_after(snapshot: Snapshot, plan: Plan) -> dict[str, int]:
    """Free units once the plan is performed and what it reserves is held back."""
    used, held = used_after(snapshot, plan), units_held(plan)
    limits = {AIRFLOW_RUNS_KEY: 60, **snapshot.limits}
    return {key: limit - used[key] - held[key] for key, limit in limits.items()}


def may_run(snapshot: Snapshot, plan: Plan, candidate: Candidate) -> bool:
    """Whether no gate stops it, the breaker's probe included."""
    stage = (candidate.pipeline, candidate.stage)
    probing = snapshot.breakers.get(stage) is BreakerGate.PROBE
    probed = any((g.pipeline, g.stage) == stage for g in plan.grants)
    return candidate.due(NOW) and gate(candidate, snapshot, NOW) is None and not (probing and probed)


@given(snapshots())
def test_limits_are_never_exceeded_by_a_grant(snapshot):
    used = used_after(snapshot, dispatch(snapshot, NOW))
    for key, limit in snapshot.limits.items():
        assert used[key] <= max(limit, snapshot.usage.get(key, 0))


@given(snapshots())
def test_units_held_back_are_free_units(snapshot):
    plan = dispatch(snapshot, NOW)
    held, free = units_held(plan), free_after(snapshot, plan)
    assert all(free[key] >= 0 for key in held)


@given(snapshots())
def test_each_grant_is_a_candidate_once(snapshot):
    numbers = granted(dispatch(snapshot, NOW))
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= {c.item_id for c in snapshot.candidates}


@given(snapshots())
def test_what_a_gate_stops_is_not_granted(snapshot):
    plan = dispatch(snapshot, NOW)
    by_id = {c.item_id: c for c in snapshot.candidates}
    for number in granted(plan):
        assert gate(by_id[number], snapshot, NOW) is None
        assert by_id[number].due(NOW)


@given(snapshots())
def test_no_admissible_item_waits_beside_free_capacity(snapshot):
    plan = dispatch(snapshot, NOW)
    free, done = free_after(snapshot, plan), set(granted(plan))
    for candidate in snapshot.candidates:
        if candidate.item_id not in done and may_run(snapshot, plan, candidate):
            assert any(free.get(key, 1) <= 0 for key in needs(candidate))


@given(snapshots())
def test_among_what_could_run_the_first_in_order_runs(snapshot):
    """Whoever was passed over could not have run with what the grants before it had left."""
    plan = dispatch(snapshot, NOW)
    event(f"reserved: {bool(plan.reserved)}")
    by_id = {c.item_id: c for c in snapshot.candidates}
    limits = {AIRFLOW_RUNS_KEY: 60, **snapshot.limits}
    used, probed = Counter(snapshot.usage), set()
    done = set(granted(plan))
    held_by = {(r.item_id, r.key) for r in plan.reserved}
    for candidate in sorted(by_id.values(), key=lambda c: order_key(c, NOW)):
        stage = (candidate.pipeline, candidate.stage)
        probing = snapshot.breakers.get(stage) is BreakerGate.PROBE
        if not candidate.due(NOW) or gate(candidate, snapshot, NOW) or (probing and stage in probed):
            assert candidate.item_id not in done
            continue
        fits = all(used[key] < limits.get(key, 99) for key in needs(candidate))
        assert (candidate.item_id in done) == fits
        if fits:
            used.update(needs(candidate))
            probed.add(stage)
        used.update(key for key in candidate.keys if (candidate.item_id, key) in held_by)


@given(snapshots())
def test_grants_come_in_dispatch_order(snapshot):
    by_id = {c.item_id: c for c in snapshot.candidates}
    keys = [order_key(by_id[number], NOW) for number in granted(dispatch(snapshot, NOW))]
    assert keys == sorted(keys)


@given(snapshots(), st.randoms())
def test_the_same_snapshot_gives_the_same_plan_in_whatever_order_it_is_loaded(snapshot, random):
    shuffled = list(snapshot.candidates)
    random.shuffle(shuffled)
    assert dispatch(snapshot.with_candidates(shuffled), NOW) == dispatch(snapshot, NOW)


@given(snapshots())
def test_idle_work_is_never_granted_beside_p2_work_that_runs_or_could_run(snapshot):
    plan = dispatch(snapshot, NOW)
    by_id = {c.item_id: c for c in snapshot.candidates}
    if not any(by_id[number].klass is P3 for number in granted(plan)):
        return
    assert not any(snapshot.active_classes.get(klass) for klass in STOPS_IDLE)
    assert not any(c.klass is P2 and c.due(NOW) and gate(c, snapshot, NOW) is None for c in by_id.values())


@given(snapshots())
def test_a_breaker_lets_at_most_one_probe_through(snapshot):
    stages = Counter((g.pipeline, g.stage) for g in dispatch(snapshot, NOW).grants)
    for stage, state in snapshot.breakers.items():
        most = {BreakerGate.OPEN: 0, BreakerGate.PROBE: 1, BreakerGate.CLOSED: 99}[state]
        assert stages[stage] <= most
    for grant in dispatch(snapshot, NOW).grants:
        state = snapshot.breakers.get((grant.pipeline, grant.stage))
        assert grant.probe == (state is BreakerGate.PROBE)


@given(snapshots())
def test_only_aged_items_that_no_gate_stops_hold_units_back(snapshot):
    plan = dispatch(snapshot, NOW)
    by_id = {c.item_id: c for c in snapshot.candidates}
    for reservation in plan.reserved:
        holder = by_id[reservation.item_id]
        assert age(holder.ready_since, NOW) >= 1
        assert reservation.key in holder.keys
        assert reservation.key != AIRFLOW_RUNS_KEY
        assert may_run(snapshot, plan, holder)
        assert holder.item_id not in granted(plan)


@settings(max_examples=200)
@given(snapshots())
def test_loading_only_what_is_wanted_keeps_capacity_busy_and_the_first_first(snapshot):
    """The ledger loads a few candidates of each group; no grant is lost by it."""
    everything, few = dispatch(snapshot, NOW), dispatch(as_a_ledger_loads(snapshot), NOW)
    assert granted(few) == granted(everything)
    assert few.waiting == everything.waiting


@given(snapshots())
def test_every_stage_with_items_left_says_why(snapshot):
    plan = dispatch(snapshot, NOW)
    left = Counter((c.pipeline, c.stage) for c in snapshot.candidates if c.due(NOW))
    left.subtract((g.pipeline, g.stage) for g in plan.grants)
    assert set(plan.waiting) == {stage for stage, count in left.items() if count > 0}
    assert all(plan.why[stage] for stage in plan.waiting)
    for candidate in snapshot.candidates:
        reason = plan.reason(candidate, NOW)
        assert (reason is WaitReason.NEXT) == (candidate.item_id in granted(plan))


@given(snapshots())
def test_two_aged_items_never_block_each_other_for_good(snapshot):
    """When every run has ended, the first in order that no gate stops runs, whatever reserves."""
    idle = Snapshot(
        candidates=snapshot.candidates,
        groups=snapshot.groups,
        limits=snapshot.limits,
        conditions=snapshot.conditions,
        breakers=snapshot.breakers,
        closed_until=snapshot.closed_until,
    )
    plan = dispatch(idle, NOW)
    free = [c for c in idle.candidates if c.due(NOW) and gate(c, idle, NOW) is None]
    if free:
        assert granted(plan)[0] == min(free, key=lambda c: order_key(c, NOW)).item_id

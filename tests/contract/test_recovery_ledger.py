"""The doom-spiral rules as the ledger performs them: each test fails when its rule is removed."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import func, select, update

from airflow_relay.core.finding import RecoveryAction, RunLiveness
from airflow_relay.core.item import Run, replay
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.core.rules import RecoveryRules, RuleSet
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import EventKind, ItemState, RunResult, RunState
from airflow_relay.ledger import alerts, breakers, codec, dead_letters, dispatching, items, recovering, runs
from airflow_relay.ledger.dead_letters import LetterFilter
from airflow_relay.ledger.recovering import Heard, Plan, Scope
from airflow_relay.ledger.schema import events
from airflow_relay.ledger.schema import items as item_table
from airflow_relay.operations import actions
from support.pipelines import START, Driver, line

RULES = RuleSet()


class Sweeper:
    """Plays ``relay__recovery`` for a driver."""

    def __init__(self, drive: Driver, rules: RuleSet = RULES) -> None:
        self.drive = drive
        self.rules = rules

    def plan(self, heard: dict[int, Heard] | None = None, scope: Scope | None = None) -> Plan:
        with self.drive.ledger.read() as tx:
            return recovering.plan(
                tx,
                rules=self.rules,
                conditions=self.drive.conditions,
                heard=heard or {},
                now=self.drive.now,
                scope=scope,
            )

    def perform(self, plan: Plan) -> list[Run]:
        with self.drive.ledger.dispatcher() as tx:
            for order, decision in enumerate(plan.acting):
                rules = self.rules.of(decision.pipeline)
                if decision.action is RecoveryAction.REFIRE:
                    recovering.refire(tx, decision, rules=rules, now=self.drive.now, order=order)
                elif decision.action is RecoveryAction.DEAD_LETTER:
                    recovering.dead_letter(tx, decision, rules=rules, now=self.drive.now)
                elif decision.action is RecoveryAction.ALERT_LATE:
                    recovering.alert_late(tx, decision, now=self.drive.now)
            return dispatching.run_dispatch(tx, self.drive.conditions, self.drive.now)

    def sweep(self, heard: dict[int, Heard] | None = None) -> list[Run]:
        return self.perform(self.plan(heard))

    def only(self, heard: dict[int, Heard] | None = None) -> RecoveryAction:
        """What the sweep would do about the only stale item."""
        counts = self.plan(heard).counts
        assert sum(counts.values()) == 1, counts
        return next(iter(counts))


@pytest.fixture
def sweeper(drive: Driver) -> Sweeper:
    return Sweeper(drive)


def fail(drive: Driver, run: Run, error: str = "timeout") -> list[Run]:
    """Start a run and let it fail; returns what its end let in."""
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    return list(drive.end(run, result=RunResult.FAILED, error=error).grants)


def one_failed(drive: Driver, key: str = "a", error: str = "timeout") -> Run:
    """An item that failed in its first stage, just now."""
    (run,) = drive.intake(key)
    fail(drive, run, error)
    return run


def letters(drive: Driver) -> list[dead_letters.DeadLetter]:
    with drive.ledger.read() as tx:
        return dead_letters.listing(tx)


def alert_texts(drive: Driver) -> list[str]:
    with drive.ledger.read() as tx:
        return [a.text for a in alerts.unsent(tx)]


# The rules of DESIGN 4


def test_a_stale_failed_item_is_refired_once_and_charged_one_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    (granted,) = sweeper.sweep()
    item = drive.item("a")
    assert (item.state, item.attempts, item.attempts_day) == (ItemState.GRANTED, 1, "2026-03-02")
    assert item.last_attempt_at == drive.now
    assert granted.attempt == 1
    assert sweeper.sweep() == []


def test_an_item_is_left_while_its_last_activity_is_young(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2, seconds=-1)
    assert sweeper.plan().counts == {}
    drive.later(seconds=1)
    assert sweeper.only() is RecoveryAction.REFIRE


def test_the_stale_time_of_a_pipeline_holds_for_its_items_alone(drive):
    one_failed(drive)
    patient = RuleSet(pipelines={"line": RecoveryRules(stale=timedelta(hours=5))})
    drive.later(hours=3)
    assert Sweeper(drive, patient).plan().acting == ()
    drive.later(hours=2)
    assert Sweeper(drive, patient).only() is RecoveryAction.REFIRE


@pytest.mark.parametrize("liveness", [RunLiveness.ALIVE, RunLiveness.NOT_ASKED])
def test_a_run_that_is_alive_or_unknown_is_never_touched(drive, sweeper, liveness):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.later(hours=5)
    assert sweeper.sweep({run.item_id: Heard(liveness)}) == []
    assert drive.item("a").state is ItemState.RUNNING
    assert drive.run(run).state is RunState.OPEN


def test_a_run_that_nobody_has_asked_airflow_about_is_left(drive, sweeper):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    drive.later(hours=5)
    assert sweeper.only() is RecoveryAction.LEAVE
    assert sweeper.sweep() == []


def test_a_late_run_is_told_of_once_and_not_refired(drive, sweeper):
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    heard = {run.item_id: Heard(RunLiveness.ALIVE_LATE)}
    drive.later(hours=3)
    assert sweeper.sweep(heard) == []
    drive.later(hours=3)
    assert sweeper.sweep(heard) == []
    assert [t for t in alert_texts(drive) if "later than expected" in t] == alert_texts(drive)
    assert len(alert_texts(drive)) == 1
    assert drive.item("a").attempts == 0


def test_a_run_found_dead_counts_from_its_last_activity_before_that(drive, sweeper):
    """Recording the end is an activity of the ledger, not of the item."""
    (run,) = drive.intake("a")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    idle_since = drive.item("a").last_activity_at
    drive.later(hours=3)
    drive.end(run, result=RunResult.LOST)
    assert sweeper.plan().acting == ()
    (granted,) = sweeper.sweep({run.item_id: Heard(RunLiveness.NO_RUN, since=idle_since)})
    assert granted.epoch == run.epoch + 1
    assert drive.item("a").attempts == 1


def test_a_run_queued_behind_a_paused_dag_waits_and_takes_no_place_in_the_sweep(drive):
    """The DAG may be unpaused between the question and the decision: Airflow then starts the run itself."""
    (queued,) = drive.intake("queued")
    drive.ledger.confirm([queued.id], drive.now)
    one_failed(drive, "failed")
    drive.later(hours=3)
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan({queued.item_id: Heard(RunLiveness.QUEUED_PAUSED)})
    assert plan.counts == {RecoveryAction.SKIP_PAUSED: 1, RecoveryAction.REFIRE: 1}
    assert [run.item_id for run in sweeper.perform(plan)] == [drive.item("failed").id]
    assert drive.run(queued).state is RunState.OPEN
    assert drive.item("queued").attempts == 0


def test_an_item_that_ended_during_the_sweep_is_left_and_takes_no_place_in_it(drive):
    """This very sweep has recorded its lost run; before it decides, a person discards the item."""
    (run,) = drive.intake("ended")
    drive.ledger.confirm([run.id], drive.now)
    drive.guard(run)
    idle_since = drive.item("ended").last_activity_at
    drive.later(seconds=1)
    one_failed(drive, "failed")
    drive.later(hours=3)
    drive.end(run, result=RunResult.LOST)
    actions.discard(drive.ledger, "ended", by="ada", now=drive.now, pipeline="line")
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan({run.item_id: Heard(RunLiveness.NO_RUN, since=idle_since)})
    assert plan.counts == {RecoveryAction.LEAVE: 1, RecoveryAction.REFIRE: 1}
    assert [granted.item_id for granted in sweeper.perform(plan)] == [drive.item("failed").id]
    assert drive.item("ended").state is ItemState.DISCARDED


def test_an_item_in_flight_whose_run_is_closed_is_taken_up(drive, sweeper):
    """No path leads there; if one did, the item would still be moved."""
    (run,) = drive.intake("a")
    with drive.ledger.dispatcher() as tx:
        runs.close(tx, run, result=RunResult.LOST, now=drive.now)
    drive.later(hours=2)
    assert len(sweeper.sweep()) == 1


def test_three_attempts_a_day_then_a_dead_letter_with_one_alert(drive, sweeper):
    run = one_failed(drive)
    for number in (1, 2, 3):
        drive.later(hours=2)
        (run,) = sweeper.sweep()
        fail(drive, run)
        assert drive.item("a").attempts == number
    drive.later(hours=2)
    for _ in range(3):
        assert sweeper.sweep() == []
    item = drive.item("a")
    assert item.state is ItemState.DEAD
    assert item.attempts == 3
    (letter,) = letters(drive)
    assert "3 of 3 recovery attempts used today" in letter.reason
    assert len(alert_texts(drive)) == 1
    whats = [entry["what"] for entry in letter.trail]
    assert whats.count(EventKind.RECOVERED.value) == 3
    assert whats.count(EventKind.FAILED.value) == 4


def test_attempts_of_yesterday_do_not_count_by_the_pipelines_own_calendar(ledger):
    tokyo = Pipeline("tokyo", [Stage("only", to=END, schedule="0 7 * * *")], timezone="Asia/Tokyo")
    drive = Driver(ledger, tokyo)
    drive.now = START.replace(hour=7)  # 16:00 in Tokyo
    sweeper = Sweeper(drive)
    run = one_failed(drive)
    for _ in range(3):
        drive.later(hours=2)
        (run,) = sweeper.sweep()
        fail(drive, run)
    assert drive.item("a").attempts_day == "2026-03-02"
    drive.later(hours=2, minutes=30)  # 15:30 UTC is 00:30 of the next day there
    (run,) = sweeper.sweep()
    assert (drive.item("a").attempts, drive.item("a").attempts_day) == (1, "2026-03-03")


def test_no_second_attempt_within_the_cooldown(drive):
    eager = RuleSet(default=RecoveryRules(stale=timedelta(minutes=1)))
    sweeper = Sweeper(drive, eager)
    one_failed(drive)
    drive.later(minutes=1)
    (run,) = sweeper.sweep()
    fail(drive, run)
    drive.later(hours=2, seconds=-1)
    assert sweeper.only() is RecoveryAction.WAIT_COOLDOWN
    assert sweeper.sweep() == []
    drive.later(seconds=1)
    assert len(sweeper.sweep()) == 1


def test_a_non_retryable_error_goes_to_the_dead_letters_without_a_refire(drive, sweeper):
    one_failed(drive)
    with drive.ledger.write() as tx:  # as an older version has left it
        tx.conn.execute(update(item_table).values(error_class="auth"))
    drive.later(hours=2)
    assert sweeper.sweep() == []
    assert drive.item("a").state is ItemState.DEAD
    assert letters(drive)[0].error_class == "auth"


def test_a_paused_target_costs_no_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(paused_dags=frozenset({"line__first"}))
    assert sweeper.only() is RecoveryAction.SKIP_PAUSED
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0
    drive.conditions = Conditions()
    assert len(sweeper.sweep()) == 1


def test_an_open_breaker_costs_no_attempt_and_half_open_lets_one_through(drive, sweeper):
    granted = drive.intake(*"abcde")
    for run in granted:
        fail(drive, run, "server_error")
    drive.later(hours=2)
    with drive.ledger.dispatcher() as tx:
        breakers.change(
            tx,
            "line",
            "first",
            drive.now,
            lambda b: breakers.rules.open_by_hand(b, now=drive.now, reason="test"),
        )
    assert sweeper.plan().counts == {RecoveryAction.SKIP_BREAKER: 5}
    assert sweeper.sweep() == []
    drive.later(hours=4)
    assert sweeper.plan().counts == {RecoveryAction.REFIRE: 1, RecoveryAction.SKIP_BREAKER: 4}
    assert len(sweeper.sweep()) == 1
    assert sum(drive.item(key).attempts for key in "abcde") == 1


def test_a_missing_slot_costs_no_attempt(ledger):
    drive = Driver(ledger, line(first=2))
    sweeper = Sweeper(drive)
    granted = drive.intake(*"abc")
    while granted:
        granted += fail(drive, granted.pop())
    drive.later(hours=2)
    assert sweeper.plan().counts == {RecoveryAction.REFIRE: 2, RecoveryAction.SKIP_SLOT: 1}
    assert len(sweeper.sweep()) == 2
    assert sorted(drive.item(key).attempts for key in "abc") == [0, 1, 1]


@pytest.mark.parametrize("scope", ["line", "P2"])
def test_a_hold_costs_no_attempt(drive, sweeper, scope):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(holds={scope: "the agents are talked to"})
    assert sweeper.only() is RecoveryAction.LEAVE
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0


def test_a_used_up_budget_costs_no_attempt(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    drive.conditions = Conditions(over_budget=frozenset({"line"}))
    assert sweeper.sweep() == []
    assert drive.item("a").attempts == 0


def test_a_dry_run_changes_nothing(drive):
    one_failed(drive)
    drive.later(hours=2)
    before = drive.item("a")
    sweeper = Sweeper(drive, RuleSet(default=RecoveryRules(dry_run=True)))
    assert sweeper.only() is RecoveryAction.DRY_RUN
    assert sweeper.sweep() == []
    assert drive.item("a") == before


def test_an_excluded_item_is_left(drive):
    one_failed(drive)
    drive.later(hours=2)
    sweeper = Sweeper(drive, RuleSet(default=RecoveryRules(exclude=frozenset({"a"}))))
    assert sweeper.only() is RecoveryAction.EXCLUDED
    assert sweeper.sweep() == []


def test_a_decision_of_before_an_exclude_or_a_dry_run_is_no_longer_performed(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    plan = sweeper.plan()
    careful = Sweeper(drive, RuleSet(default=RecoveryRules(exclude=frozenset({"a"}))))
    assert careful.perform(plan) == []
    assert drive.item("a").attempts == 0


def test_a_ready_item_is_left_to_the_dispatcher(ledger):
    drive = Driver(ledger, line())
    drive.conditions = Conditions(limits={"line.first": 0})
    assert drive.intake("a") == []
    drive.later(days=3)
    sweeper = Sweeper(drive)
    with ledger.read() as tx:
        assert recovering.count_stale(tx, RULES, drive.now).ready == 1
    assert sweeper.plan().counts == {}
    assert drive.item("a").attempts == 0


def test_items_of_a_stage_that_no_longer_exists_are_counted_and_do_not_use_the_cap(drive):
    granted = drive.intake(*"abc")
    for run in granted:
        fail(drive, run)
    with drive.ledger.write() as tx:
        gone = update(item_table).where(item_table.c.key.in_(["a", "b"]))
        tx.conn.execute(gone.values(stage="removed", rank=1000))
    drive.later(hours=2)
    sweeper = Sweeper(drive, RuleSet(refires_per_sweep=1))
    plan = sweeper.plan()
    assert plan.stranded == 2
    assert [d.key for d in plan.acting] == ["c"]


# Many at once


def stuck(drive: Driver, number: int) -> None:
    """Items that failed long ago, written as the ledger would have them."""
    (run,) = drive.intake("seed")
    fail(drive, run)
    seed = drive.item("seed")
    rows = []
    for index in range(number):
        stage = ("first", "second", "third")[index % 3]
        rows.append(
            {
                **{c.name: getattr(seed, c.name) for c in item_table.columns if c.name not in ("id", "keys")},
                "key": f"item-{index}",
                "stage": stage,
                "rank": drive.pipeline.rank(stage),
                "keys": list(drive.pipeline.keys(stage)),
                "dag_id": drive.pipeline.dag_id(stage),
                "visits": {stage: 1},
                "last_activity_at": START - timedelta(minutes=number - index),
            }
        )
    with drive.ledger.write() as tx:
        tx.conn.execute(item_table.insert(), rows)


def test_of_two_thousand_stuck_items_a_sweep_refires_its_cap_highest_stage_and_oldest_first(drive, sweeper):
    stuck(drive, 2000)
    drive.later(hours=3)
    drive.conditions = Conditions(limits={"airflow.runs": 1000})
    plan = sweeper.plan()
    assert plan.counts == {RecoveryAction.REFIRE: 50, RecoveryAction.OVER_SWEEP_CAP: 1951}
    assert len(plan.acting) == 50
    granted = sweeper.perform(plan)
    assert [r.stage for r in granted] == ["third"] * 50
    with drive.ledger.read() as tx:
        keys = [items.by_id(tx, r.item_id).key for r in granted]
    assert keys == [f"item-{index}" for index in range(2, 152, 3)]


def test_after_an_outage_airflow_never_holds_more_than_its_limit(drive, sweeper):
    stuck(drive, 2000)
    drive.conditions = Conditions(limits={"airflow.runs": 30})
    for _ in range(4):
        drive.later(hours=3)
        sweeper.sweep()
        assert drive.usage()["airflow.runs"] <= 30
    with drive.ledger.read() as tx:
        charged = tx.conn.execute(
            select(func.count()).select_from(item_table).where(item_table.c.attempts > 0)
        ).scalar_one()
    assert charged == 30  # the others found no slot, so they paid nothing


def test_dead_letters_of_one_sweep_are_bounded_and_the_next_one_goes_on(drive, sweeper):
    stuck(drive, 300)
    with drive.ledger.write() as tx:
        tx.conn.execute(update(item_table).values(error_class="auth"))
    drive.later(hours=3)
    sweeper.sweep()
    assert len(letters(drive)) == 100  # a page of the listing
    with drive.ledger.read() as tx:
        assert sum(dead_letters.counts(tx).values()) == recovering.ACTS_LIMIT
    sweeper.sweep()
    with drive.ledger.read() as tx:
        assert sum(dead_letters.counts(tx).values()) == 301


def test_one_stage_alone_can_be_served(drive, sweeper):
    stuck(drive, 30)
    drive.later(hours=3)
    plan = sweeper.plan(scope=Scope("line", "second"))
    assert {d.stage for d in plan.acting} == {"second"}
    assert len(plan.acting) == 10


# Twice at once


def test_two_sweeps_that_decided_the_same_charge_once_and_start_once(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    first, second = sweeper.plan(), sweeper.plan()
    assert len(sweeper.perform(first)) == 1
    assert sweeper.perform(second) == []
    assert drive.item("a").attempts == 1


def test_two_sweeps_in_two_threads_charge_each_item_once(drive, sweeper):
    for run in drive.intake(*(f"item-{i}" for i in range(20))):
        fail(drive, run, "unknown")  # not one that the breaker counts
    drive.later(hours=2)
    plans = [sweeper.plan(), sweeper.plan()]
    granted: list[Run] = []
    failures: list[BaseException] = []

    def perform(plan: Plan) -> None:
        try:
            granted.extend(sweeper.perform(plan))
        except BaseException as error:  # noqa: BLE001 - a thread's error belongs to the test
            failures.append(error)

    threads = [threading.Thread(target=perform, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(granted) == len({r.item_id for r in granted}) == 20
    assert {drive.item(f"item-{i}").attempts for i in range(20)} == {1}


def test_an_old_decision_performed_again_days_later_keeps_cap_and_cooldown(drive, sweeper):
    """A person clears the refire task of an old sweep: its decisions are still in XCom."""
    one_failed(drive)
    drive.later(hours=2)
    plan = sweeper.plan()
    (run,) = sweeper.perform(plan)
    fail(drive, run)
    old = tuple(replace(d, epoch=drive.item("a").epoch) for d in plan.acting)
    assert sweeper.perform(replace(plan, acting=old)) == []
    assert drive.item("a").attempts == 1


def test_the_log_replays_to_the_row_after_recovery(drive, sweeper):
    one_failed(drive)
    drive.later(hours=2)
    sweeper.sweep()
    item = drive.item("a")
    with drive.ledger.read() as tx:
        assert replay(item.id, items.log_of(tx, item.id)) == item
        recovered = tx.conn.execute(select(events).where(events.c.kind == EventKind.RECOVERED)).one()
    assert codec.event_from(recovered).set["attempts"] == 1


# An outage


def outage(
    drive: Driver, sweeper: Sweeper, keys: list[str], *, hours: int, error: str
) -> list[tuple[str, int]]:
    """Every call fails: a sweep every 2 h, a tick every 30 min. Returns (key, attempts) after each sweep."""
    seen: list[tuple[str, int]] = []
    pending = drive.intake(*keys)
    for half_hour in range(1, 2 * hours + 1):
        while pending:
            pending += fail(drive, pending.pop(), error)
        drive.later(minutes=30)
        pending += sweeper.sweep() if half_hour % 4 == 0 else drive.dispatch()
        seen += [drive.item(key).attempts for key in keys]
    while pending:
        pending += fail(drive, pending.pop(), error)
    return seen


def recoveries(drive: Driver, key: str) -> list[datetime]:
    item = drive.item(key)
    with drive.ledger.read() as tx:
        return [e.at for e in items.log_of(tx, item.id, kinds=[EventKind.RECOVERED])]


def run_to_the_end(drive: Driver, pending: list[Run]) -> None:
    while pending:
        pending += drive.serve(pending.pop())


@pytest.mark.parametrize(("error", "dead"), [("unknown", 12), ("server_error", 0)])
def test_an_outage_of_a_day_keeps_cap_and_cooldown_and_after_a_bulk_redrive_all_end(
    drive, sweeper, error, dead
):
    """Errors that the breaker counts cost nearly nothing: it holds the items back, and none of them dies."""
    keys = [f"item-{n:02}" for n in range(12)]
    drive.now = START.replace(hour=6)
    seen = outage(drive, sweeper, keys, hours=14, error=error)
    assert max(seen) <= 3
    for key in keys:
        at = recoveries(drive, key)
        assert all(later - earlier >= timedelta(hours=2) for earlier, later in pairwise(at))
    letters_of = letters(drive)
    assert len(letters_of) == dead
    assert sum("is in the dead letters" in said for said in alert_texts(drive)) == dead
    drive.later(hours=5)
    actions.redrive_letters(drive.ledger, LetterFilter(pipeline="line"), by="ada", now=drive.now)
    run_to_the_end(drive, drive.dispatch())
    for _ in range(3):
        drive.later(hours=2)
        run_to_the_end(drive, sweeper.sweep())
    assert {drive.item(key).state for key in keys} == {ItemState.DONE}


def test_a_weekend_without_airflow_costs_nobody_an_attempt(drive, sweeper):
    """Runs that were under way are alive for Airflow when it comes back: queued, or waiting in a trigger."""
    granted = drive.intake("running", "granted")
    drive.ledger.confirm([run.id for run in granted], drive.now)
    drive.guard(granted[0])
    drive.later(days=2.5)
    heard = {run.item_id: Heard(RunLiveness.ALIVE) for run in granted}
    assert sweeper.sweep(heard) == []
    assert {drive.item(key).attempts for key in ("running", "granted")} == {0}
    for run in granted:
        drive.guard(run)
        drive.end(run)
    assert {drive.item(key).stage for key in ("running", "granted")} == {"second"}

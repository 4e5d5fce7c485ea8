"""Any history of grants, starts, ends, clears and lost runs keeps the ledger's invariants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import func, select

from airflow_relay.core.item import Run, replay
from airflow_relay.core.pipeline import DISCARD, END, Pipeline, Stage
from airflow_relay.core.states import IN_FLIGHT, ItemState, RunResult, RunState
from airflow_relay.ledger import closing, dispatching, items, runs, schema
from airflow_relay.ledger.store import Ledger
from support.pipelines import Driver, MemoryObjects

LIMITS = {"loop.draft": 2, "loop.review": 1, "agents": 3}
PIPELINE = Pipeline(
    "loop",
    [
        Stage(
            "draft",
            to="review",
            schedule="0 7 * * *",
            limit=2,
            keys=("agents",),
            max_visits=3,
            after_max_visits="ship",
        ),
        Stage("review", to={"ok": "ship", "again": "draft", "bad": DISCARD}, limit=1, keys=("agents",)),
        Stage("ship", to=END),
    ],
    limits={"agents": 3},
)
ERRORS = st.sampled_from(["network", "timeout", "content_policy", "unknown", "rate_limit"])
EXAMPLES = itertools.count()
ANY = st.integers(min_value=0, max_value=10_000)


class LedgerMachine(RuleBasedStateMachine):
    """Plays Airflow, people and failures against one ledger."""

    url = ""

    @initialize()
    def begin(self) -> None:
        self.drive = Driver(Ledger(self.url, MemoryObjects()), PIPELINE)
        self.granted: list[Run] = []
        self.handed_off: dict[tuple[int, int], int] = {}
        self.clears: dict[int, int] = {}
        self.example = next(EXAMPLES)
        self.count = 0

    def pick(self, number: int) -> Run:
        return self.drive.run(self.granted[number % len(self.granted)])

    def note_grants(self, grants: list[Run] | tuple[Run, ...]) -> None:
        known = {r.id for r in self.granted}
        assert not known & {g.id for g in grants}, "a grant was issued twice"
        self.granted += grants

    @rule(count=st.integers(min_value=1, max_value=3))
    def take_in(self, count: int) -> None:
        keys = [f"{self.example}-{self.count + i}" for i in range(count)]
        self.count += count
        self.note_grants(self.drive.intake(*keys))

    @precondition(lambda self: self.granted)
    @rule(number=ANY)
    def start(self, number: int) -> None:
        run = self.pick(number)
        self.drive.guard(run, clear_number=self.clears.get(run.id, 0))

    @precondition(lambda self: self.granted)
    @rule(number=ANY, outcome=st.sampled_from(["ok", "again", "bad", "nonsense", None]))
    def complete(self, number: int, outcome: str | None) -> None:
        run = self.pick(number)
        done = self.drive.end(run, outcome, clear_number=self.clears.get(run.id, 0))
        if done.closed.current:
            epoch = (run.item_id, run.epoch)
            self.handed_off[epoch] = self.handed_off.get(epoch, 0) + 1
        self.note_grants(done.grants)

    @precondition(lambda self: self.granted)
    @rule(number=ANY, error=ERRORS, lost=st.booleans())
    def fail(self, number: int, error: str, lost: bool) -> None:
        result = RunResult.LOST if lost else RunResult.FAILED
        self.note_grants(
            self.drive.end(self.pick(number), result=result, error=None if lost else error).grants
        )

    @precondition(lambda self: self.granted)
    @rule(number=ANY)
    def clear(self, number: int) -> None:
        run = self.pick(number)
        self.clears[run.id] = self.clears.get(run.id, 0) + 1
        before = self.drive.run(run)
        guarded = self.drive.guard(run, clear_number=self.clears[run.id])
        if guarded.decision.action.value in ("reopen", "rewind") and guarded.has_slots:
            self.handed_off.pop((before.item_id, before.epoch), None)

    @precondition(lambda self: self.granted)
    @rule(number=ANY)
    def withdraw(self, number: int) -> None:
        run = self.pick(number)
        with self.drive.ledger.dispatcher() as tx:
            closing.withdraw(tx, run.id, pipeline=PIPELINE, why="paused", now=self.drive.now)

    @rule(minutes=st.sampled_from([1, 31, 125]))
    def time_passes(self, minutes: int) -> None:
        self.drive.later(minutes=minutes)

    @rule()
    def tick(self) -> None:
        self.note_grants(self.drive.dispatch())
        with self.drive.ledger.read() as tx:
            snapshot = dispatching.load_snapshot(tx, self.drive.conditions, self.drive.now)
        from airflow_relay.core import dispatch

        assert not dispatch.dispatch(snapshot, self.drive.now).grants, "invariant 8: an admissible item waits"

    @invariant()
    def slots_keep_their_limits_and_belong_to_open_runs(self) -> None:
        with self.drive.ledger.read() as tx:
            used = runs.usage(tx)
            query = select(func.count()).select_from(
                schema.slots.join(schema.runs, schema.runs.c.id == schema.slots.c.run)
            )
            stray = tx.conn.execute(query.where(schema.runs.c.state != RunState.OPEN)).scalar_one()
        assert stray == 0, "invariant 3: a closed or superseded run holds a slot"
        assert all(used.get(key, 0) <= limit for key, limit in LIMITS.items()), f"invariant 4: {used}"

    @invariant()
    def rows_are_the_fold_of_their_events(self) -> None:
        with self.drive.ledger.read() as tx:
            for item in items.listing(tx):
                assert replay(item.id, items.log_of(tx, item.id)) == item, "invariant 5"

    @invariant()
    def each_item_has_what_moves_it_on(self) -> None:
        with self.drive.ledger.read() as tx:
            for item in items.listing(tx):
                current = [r for r in runs.of_item(tx, item.id) if r.state is RunState.OPEN]
                if item.state in IN_FLIGHT:
                    assert [r.epoch for r in current] == [item.epoch], "invariant 1: one open run"
                else:
                    assert current == [], f"invariant 1: {item.state} beside an open run"
                if item.state is ItemState.READY:
                    assert item.ready_since is not None

    @invariant()
    def a_stage_is_handed_off_once_per_epoch(self) -> None:
        assert all(count == 1 for count in self.handed_off.values()), "invariant 2"


def play(url: str, *, examples: int) -> None:
    machine = type("Machine", (LedgerMachine,), {"url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )


def test_any_history_keeps_the_invariants(ledger_url: str, request: pytest.FixtureRequest) -> None:
    # Items of earlier examples stay in the same ledger: more neighbours, the same promises.
    play(ledger_url, examples=12)

"""The breaker of a stage: each promise by name, then any history at all."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_relay.core.breaker import (
    Breaker,
    BreakerGate,
    BreakerSettings,
    BreakerState,
    Step,
    Transition,
    close_by_hand,
    gate,
    open_by_hand,
    probe_granted,
    probe_lost,
    record,
)

NOW = datetime(2026, 3, 8, 7, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
HALF_HOUR = timedelta(minutes=30)


def fail(breaker: Breaker, *, at: datetime, run_id: int = 1) -> Step:
    return record(breaker, systemic=True, success=False, run_id=run_id, now=at)


def succeed(breaker: Breaker, *, at: datetime, run_id: int = 1) -> Step:
    return record(breaker, systemic=False, success=True, run_id=run_id, now=at)


def item_error(breaker: Breaker, *, at: datetime, run_id: int = 1) -> Step:
    return record(breaker, systemic=False, success=False, run_id=run_id, now=at)


def opened(at: datetime = NOW) -> Breaker:
    breaker = Breaker()
    for n in range(5):
        breaker = fail(breaker, at=at, run_id=n).breaker
    return breaker


def probing(run_id: int = 77) -> Breaker:
    return probe_granted(opened(), run_id=run_id).breaker


def test_the_fifth_systemic_failure_within_an_hour_opens_it():
    breaker, transitions = Breaker(), []
    for n in range(5):
        step = fail(breaker, at=NOW + n * 15 * MINUTE, run_id=n)
        breaker = step.breaker
        transitions.append(step.transition)
    assert transitions == [Transition.NONE] * 4 + [Transition.OPENED]
    assert gate(breaker, NOW + HALF_HOUR * 2) is BreakerGate.OPEN


def test_five_failures_spread_over_more_than_an_hour_do_not_open_it():
    breaker = Breaker()
    for n in range(20):
        breaker = fail(breaker, at=NOW + n * 16 * MINUTE, run_id=n).breaker
    assert gate(breaker, NOW + 20 * 16 * MINUTE) is BreakerGate.CLOSED


def test_item_level_errors_never_count():
    breaker = Breaker()
    for n in range(50):
        breaker = item_error(breaker, at=NOW, run_id=n).breaker
    assert breaker == Breaker()


def test_successes_between_failures_do_not_hide_an_outage():
    breaker = Breaker()
    for n in range(4):
        breaker = fail(breaker, at=NOW, run_id=n).breaker
        breaker = succeed(breaker, at=NOW, run_id=100 + n).breaker
    assert fail(breaker, at=NOW).transition is Transition.OPENED


def test_opening_alerts_once_per_outage():
    steps = [fail(Breaker(), at=NOW)]
    for n in range(20):  # stragglers that were granted before it opened
        steps.append(fail(steps[-1].breaker, at=NOW + n * MINUTE, run_id=n))
    now = NOW
    for n in range(6):  # and every failed probe of the same outage
        now = steps[-1].breaker.probe_at
        steps.append(probe_granted(steps[-1].breaker, run_id=100 + n))
        steps.append(fail(steps[-1].breaker, at=now, run_id=100 + n))
    assert sum(step.alerts for step in steps) == 1


def test_stragglers_neither_prolong_the_pause_nor_close_it():
    breaker = opened()
    assert fail(breaker, at=NOW + 29 * MINUTE, run_id=50).breaker == breaker
    assert succeed(breaker, at=NOW + 29 * MINUTE, run_id=51).breaker == breaker
    half_open = probing(run_id=77)
    assert fail(half_open, at=NOW + HALF_HOUR, run_id=50).breaker == half_open
    assert succeed(half_open, at=NOW + HALF_HOUR, run_id=51).breaker == half_open


def test_it_waits_half_an_hour_and_then_lets_one_probe_go():
    breaker = opened()
    assert gate(breaker, NOW + HALF_HOUR - MINUTE) is BreakerGate.OPEN
    assert gate(breaker, NOW + HALF_HOUR) is BreakerGate.PROBE
    assert gate(probe_granted(breaker, run_id=77).breaker, NOW + HALF_HOUR) is BreakerGate.OPEN
    assert gate(probe_granted(breaker, run_id=77).breaker, NOW + timedelta(days=9)) is BreakerGate.OPEN


def test_a_second_probe_is_refused():
    with pytest.raises(ValueError, match="half_open"):
        probe_granted(probing(), run_id=78)


def test_a_closed_breaker_takes_no_probe():
    with pytest.raises(ValueError, match="closed"):
        probe_granted(Breaker(), run_id=78)


def test_a_successful_probe_closes_it_and_forgets_the_failures():
    step = succeed(probing(), at=NOW + HALF_HOUR, run_id=77)
    assert step.transition is Transition.CLOSED
    assert not step.alerts
    assert step.breaker == Breaker()
    assert gate(step.breaker, NOW) is BreakerGate.CLOSED


def test_a_probe_with_an_item_level_error_closes_it_since_the_service_answered():
    step = item_error(probing(), at=NOW + HALF_HOUR, run_id=77)
    assert step.transition is Transition.CLOSED
    assert "concerns its item only" in step.reason


def test_failed_probes_double_the_pause_up_to_four_hours():
    breaker, now, pauses = opened(), NOW, []
    for n in range(6):
        now = breaker.probe_at
        pauses.append(breaker.pause)
        step = fail(probe_granted(breaker, run_id=n).breaker, at=now, run_id=n)
        assert step.transition is Transition.REOPENED
        breaker = step.breaker
        assert gate(breaker, now) is BreakerGate.OPEN
    assert pauses == [timedelta(minutes=m) for m in (30, 60, 120, 240, 240, 240)]


def test_the_next_outage_begins_with_the_first_pause_again():
    breaker = fail(probing(), at=NOW + HALF_HOUR, run_id=77).breaker
    breaker = probe_granted(breaker, run_id=78).breaker
    breaker = succeed(breaker, at=NOW, run_id=78).breaker
    for n in range(5):
        breaker = fail(breaker, at=NOW, run_id=n).breaker
    assert breaker.pause == HALF_HOUR


def test_a_lost_probe_frees_its_place_at_once():
    step = probe_lost(probing(), run_id=77)
    assert step.transition is Transition.PROBE_LOST
    assert gate(step.breaker, NOW + HALF_HOUR) is BreakerGate.PROBE
    assert step.breaker.pause == HALF_HOUR, "nothing was learnt, so the pause does not double"


def test_the_end_of_another_run_does_not_end_the_probes_lease():
    assert probe_lost(probing(), run_id=78).breaker == probing()
    assert probe_lost(opened(), run_id=77).breaker == opened()


def test_the_result_of_a_probe_that_lost_its_lease_changes_nothing():
    breaker = probe_lost(probing(), run_id=77).breaker
    assert fail(breaker, at=NOW + HALF_HOUR, run_id=77).breaker == breaker
    assert succeed(breaker, at=NOW + HALF_HOUR, run_id=77).breaker == breaker


def test_opened_by_hand_it_alerts_says_why_and_probes_after_the_pause():
    step = open_by_hand(Breaker(), now=NOW, reason="model is being replaced")
    assert step.alerts
    assert "model is being replaced" in step.breaker.reason
    assert gate(step.breaker, NOW) is BreakerGate.OPEN
    assert gate(step.breaker, NOW + HALF_HOUR) is BreakerGate.PROBE


def test_opening_an_open_breaker_by_hand_starts_its_pause_again_and_alerts_nobody():
    step = open_by_hand(probing(), now=NOW + 45 * MINUTE, reason="still down")
    assert not step.alerts
    assert step.breaker.probe_run is None
    assert step.breaker.probe_at == NOW + 75 * MINUTE


def test_closed_by_hand_grants_flow_at_once_and_past_failures_are_forgotten():
    for breaker in (opened(), probing(), fail(Breaker(), at=NOW).breaker):
        assert close_by_hand(breaker, reason="key renewed").breaker == Breaker()
    assert close_by_hand(opened(), reason="key renewed").transition is Transition.CLOSED
    assert close_by_hand(Breaker(), reason="key renewed").transition is Transition.NONE


def test_a_pause_that_a_wrong_clock_began_does_not_last_until_that_clock_is_right():
    """A machine's clock was years ahead when the breaker opened, and has been set back since."""
    opened = Breaker()
    for _ in range(5):
        opened = fail(opened, at=NOW + timedelta(days=3650)).breaker
    assert opened.state is BreakerState.OPEN
    assert gate(opened, NOW) is BreakerGate.PROBE


def test_a_clock_that_is_a_little_behind_ends_no_pause():
    opened = Breaker()
    for _ in range(5):
        opened = fail(opened, at=NOW).breaker
    assert gate(opened, NOW - 5 * MINUTE) is BreakerGate.OPEN


def test_failures_that_a_wrong_clock_recorded_are_not_recent_for_ever():
    breaker = Breaker()
    for _ in range(4):
        breaker = fail(breaker, at=NOW + timedelta(days=3650)).breaker
    assert fail(breaker, at=NOW).breaker.state is BreakerState.CLOSED


def test_settings_are_followed():
    settings = BreakerSettings(threshold=2, window=MINUTE, pause=3 * MINUTE, max_pause=5 * MINUTE)
    first = record(Breaker(), systemic=True, success=False, run_id=1, now=NOW, settings=settings)
    step = record(first.breaker, systemic=True, success=False, run_id=2, now=NOW + MINUTE, settings=settings)
    assert step.breaker.probe_at == NOW + 4 * MINUTE
    probe = probe_granted(step.breaker, run_id=3).breaker
    again = record(probe, systemic=True, success=False, run_id=3, now=NOW, settings=settings)
    assert again.breaker.pause == 5 * MINUTE


class AnyHistory(RuleBasedStateMachine):
    """Against a plain model: which runs are open, which of them is the probe."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = NOW
        self.runs: list[int] = []
        self.probe: int | None = None
        self.last_id = 0

    @rule(minutes=st.integers(-30, 300))
    def time_passes(self, minutes):
        self.now += minutes * MINUTE

    @rule()
    def the_dispatcher_comes_by(self):
        found = gate(self.breaker, self.now)
        if found is BreakerGate.OPEN:
            return
        self.last_id += 1
        self.runs.append(self.last_id)
        if found is BreakerGate.PROBE:
            assert self.probe is None, "two probes at once"
            self.probe = self.last_id
            self.breaker = probe_granted(self.breaker, run_id=self.last_id).breaker

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), end=st.sampled_from(["success", "systemic", "item", "lost"]))
    def a_run_ends(self, data, end):
        run_id = data.draw(st.sampled_from(self.runs))
        self.runs.remove(run_id)
        was_closed = self.breaker.state is BreakerState.CLOSED
        if end == "lost":
            step = probe_lost(self.breaker, run_id=run_id)
        else:
            step = record(
                self.breaker,
                systemic=end == "systemic",
                success=end == "success",
                run_id=run_id,
                now=self.now,
            )
        assert step.alerts == (was_closed and step.breaker.state is BreakerState.OPEN)
        if run_id == self.probe:
            self.probe = None
            assert step.breaker.state is not BreakerState.HALF_OPEN, "the lease outlived its run"
        self.breaker = step.breaker

    @rule()
    def a_person_opens_it(self):
        self.breaker = open_by_hand(self.breaker, now=self.now, reason="tried").breaker
        self.probe = None

    @rule()
    def a_person_closes_it(self):
        self.breaker = close_by_hand(self.breaker, reason="tried").breaker
        self.probe = None

    @invariant()
    def the_probe_is_the_one_that_the_model_knows(self):
        assert self.breaker.probe_run == self.probe
        assert (self.breaker.state is BreakerState.HALF_OPEN) == (self.probe is not None)

    @invariant()
    def it_never_jams(self):
        if self.probe is None:
            later = self.now + timedelta(days=30)
            assert gate(self.breaker, later) is not BreakerGate.OPEN

    @invariant()
    def it_survives_the_ledger(self):
        assert Breaker.from_json(json.loads(json.dumps(self.breaker.to_json()))) == self.breaker
        assert len(self.breaker.failures) <= 5


TestAnyHistory = AnyHistory.TestCase

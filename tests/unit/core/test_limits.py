"""The Variables ``relay_limits`` and ``relay_hold``, token budgets, and the adaptive rule."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from airflow_relay.core.errors import ErrorClass
from airflow_relay.core.limits import (
    BURST,
    PRESSURE,
    Adaptive,
    AdaptiveState,
    Limits,
    Outcome,
    adapt,
    day_end,
    day_start,
    over_budget,
    parse_holds,
    parse_limits,
    under,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
RULE = Adaptive(start=4, min=1, max=16)


class TestRelayLimits:
    @pytest.mark.parametrize("nothing", [None, "", "  ", "{}", {}])
    def test_absent_or_empty_sets_nothing(self, nothing):
        assert parse_limits(nothing) == (Limits(), ())

    def test_reads_limits_adaptive_keys_and_budgets(self):
        text = (
            '{"airflow.runs": 40, "newsroom.critique": 2, "gpu": 0, '
            '"agents": {"start": 4, "min": 1, "max": 16}, "budget.newsroom": 200000}'
        )
        limits, problems = parse_limits(text)
        assert problems == ()
        assert limits.fixed == {"airflow.runs": 40, "newsroom.critique": 2, "gpu": 0}
        assert limits.adaptive == {"agents": RULE}
        assert limits.budgets == {"newsroom": 200_000}

    def test_an_object_that_airflow_has_read_already_is_taken_as_well(self):
        assert parse_limits({"agents": 3})[0].fixed == {"agents": 3}

    def test_window_and_interval_of_an_adaptive_key_may_be_given(self):
        value = {"start": 2, "min": 1, "max": 8, "window": 10, "interval": 30}
        assert parse_limits({"agents": value})[0].adaptive["agents"] == Adaptive(**value)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (-1, "-1 is no limit"),
            (2.5, "2.5 is no limit"),
            ("4", "without quotes"),
            (True, "True is no limit"),
            (None, "None is no limit"),
            ([4], "is no limit"),
            ({"start": 4, "min": 1}, "'max': give whole numbers"),
            ({"start": 4, "min": 0, "max": 9}, "'min': give whole numbers of at least 1"),
            ({"start": 4, "min": 1, "max": "16"}, "'max'"),
            ({"start": 4, "min": 1, "max": 16, "interval": 0}, "'interval'"),
            ({"start": 9, "min": 1, "max": 8}, "start=9 must lie between min=1 and max=8"),
            ({"start": 4, "min": 1, "max": 16, "maximum": 3}, "'maximum': an adaptive limit knows"),
            # What no database and no timedelta can take would stop every later decision.
            (10**20, "from 0 to 1000000"),
            ({"start": 4, "min": 1, "max": 10**20}, "max=100000000000000000000 is above 1000000"),
            ({"start": 4, "min": 1, "max": 16, "window": 10**13}, "window=10000000000000 is above 2592000"),
            ({"start": 4, "min": 1, "max": 16, "interval": 10**13}, "interval=10000000000000 is above"),
        ],
    )
    def test_a_wrong_entry_is_named_and_the_others_hold(self, value, words):
        limits, problems = parse_limits({"agents": value, "gpu": 2})
        assert limits == Limits(fixed={"gpu": 2})
        (problem,) = problems
        assert problem.startswith("relay_limits['agents']: ")
        assert words in problem

    @pytest.mark.parametrize("value", [-1, "1000", 1.5, {"start": 1, "min": 1, "max": 2}])
    def test_a_wrong_budget_is_named(self, value):
        limits, problems = parse_limits({"budget.news": value})
        assert limits == Limits()
        assert "relay_limits['budget.news']" in problems[0]
        assert "tokens" in problems[0]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{4", "no valid JSON"),
            ("[1]", "no JSON object"),
            ("5", "no JSON"),
            ("[" * 10**5, "no valid JSON"),
        ],
    )
    def test_what_is_no_object_sets_nothing_and_says_so(self, text, words):
        limits, problems = parse_limits(text)
        assert limits == Limits()
        assert words in problems[0]

    def test_a_key_that_nobody_declares_is_used_and_reported_with_a_guess(self):
        limits, problems = parse_limits(
            {"agnets": 3, "airflow.runs": 9, "budget.news": 5, "budget.nwes": 5}, known=["agents", "news"]
        )
        assert limits.fixed["agnets"] == 3
        assert problems == (
            "relay_limits['agnets']: no pipeline declares 'agnets'. Did you mean 'agents'?",
            "relay_limits['budget.nwes']: no pipeline declares 'nwes'. Did you mean 'news'?",
        )

    def test_effective_limits_take_the_present_value_of_adaptive_keys(self):
        limits, _ = parse_limits({"gpu": 2, "agents": {"start": 4, "min": 1, "max": 16}})
        assert limits.effective({}) == {"gpu": 2, "agents": 4}
        assert limits.effective({"agents": AdaptiveState(limit=7)}) == {"gpu": 2, "agents": 7}
        assert limits.effective({"agents": AdaptiveState(limit=99)}) == {"gpu": 2, "agents": 16}


class TestRelayHold:
    @pytest.mark.parametrize("nothing", [None, "", "{}"])
    def test_absent_or_empty_holds_nothing(self, nothing):
        assert parse_holds(nothing, NOW) == ({}, ())

    def test_a_class_or_a_pipeline_with_a_reason(self):
        holds, problems = parse_holds('{"P2": "a person talks", "newsroom": {"reason": "vacation"}}', NOW)
        assert problems == ()
        assert {s: h.reason for s, h in holds.items()} == {"P2": "a person talks", "newsroom": "vacation"}
        assert all(h.until is None for h in holds.values())

    @pytest.mark.parametrize(
        ("until", "held"),
        [
            ("2026-06-01T12:00:01Z", True),
            ("2026-06-01T12:00:00Z", False),
            ("2026-06-01T13:59+02:00", False),
            ("2026-06-01T14:01+02:00", True),
        ],
    )
    def test_a_hold_ends_by_itself(self, until, held):
        holds, problems = parse_holds({"P2": {"reason": "r", "until": until}}, NOW)
        assert problems == ()
        assert ("P2" in holds) is held

    def test_the_end_is_told_in_utc(self):
        holds, _ = parse_holds({"P2": {"reason": "r", "until": "2026-06-01T15:00+02:00"}}, NOW)
        assert holds["P2"].until == NOW + timedelta(hours=1)
        assert holds["P2"].until.utcoffset() == timedelta(0)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (True, "give a reason"),
            (None, "give a reason"),
            ({"until": "2026-06-02T00:00Z"}, "give a reason"),
            ({"reason": "r", "until": "tomorrow"}, "'tomorrow' is no time"),
            ({"reason": "r", "until": 5}, "5 is no time"),
            ({"reason": "r", "until": "9999-12-31T23:59:59-12:00"}, "is no time"),
            ({"reason": "r", "until": "2026-06-02T00:00"}, "has no timezone"),
            ({"reason": "r", "til": "2026-06-02T00:00Z"}, "'til': a hold knows reason and until"),
        ],
    )
    def test_a_wrong_entry_is_named_and_the_others_hold(self, value, words):
        holds, problems = parse_holds({"P2": value, "P3": "r"}, NOW)
        assert set(holds) == {"P3"}
        (problem,) = problems
        assert problem.startswith("relay_hold['P2']: ")
        assert words in problem

    def test_a_name_that_can_be_no_pipeline_is_refused(self):
        holds, problems = parse_holds({"news room": "r"}, NOW)
        assert holds == {}
        assert "neither a class (P0, P1, P2, P3) nor a pipeline" in problems[0]

    def test_a_class_in_small_letters_is_no_pipeline_of_that_name(self):
        holds, problems = parse_holds({"p2": "r"}, NOW)
        assert holds == {}
        assert problems == ("relay_hold['p2']: write the class 'P2', with a capital letter.",)

    def test_an_unknown_pipeline_is_reported_with_a_guess(self):
        holds, problems = parse_holds({"newsrom": "r", "P2": "r"}, NOW, known=["newsroom"])
        assert set(holds) == {"newsrom", "P2"}
        assert problems == (
            "relay_hold['newsrom']: no pipeline declares 'newsrom'. Did you mean 'newsroom'?",
        )

    def test_an_empty_reason_holds_all_the_same(self):
        assert parse_holds({"P2": " "}, NOW)[0]["P2"].reason == "no reason given"


class TestBudget:
    def test_is_used_up_when_the_tokens_reach_it(self):
        budgets = {"a": 100, "b": 100, "c": 100, "d": 0}
        assert over_budget(budgets, {"a": 99, "b": 100, "e": 10**9}) == {"b", "d"}

    def test_a_day_begins_at_midnight_of_the_pipelines_timezone(self):
        now = datetime(2026, 6, 1, 22, 30, tzinfo=timezone.utc)  # 00:30 on 2 June in Berlin
        assert day_start("Europe/Berlin", now) == datetime(2026, 6, 1, 22, tzinfo=timezone.utc)
        assert day_end("Europe/Berlin", now) == datetime(2026, 6, 2, 22, tzinfo=timezone.utc)
        assert day_start("UTC", now) == datetime(2026, 6, 1, tzinfo=timezone.utc)

    def test_a_day_on_which_the_clock_changes_has_23_or_25_hours(self):
        for month, day, hours in ((3, 29, 23), (10, 25, 25)):
            noon = datetime(2026, month, day, 12, tzinfo=timezone.utc)
            assert day_end("Europe/Berlin", noon) - day_start("Europe/Berlin", noon) == timedelta(hours=hours)

    def test_a_midnight_that_does_not_exist_is_the_first_instant_of_the_day(self):
        noon = datetime(2026, 4, 24, 12, tzinfo=timezone.utc)  # Cairo jumps from 00:00 to 01:00
        start = day_start("Africa/Cairo", noon)
        assert start == datetime(2026, 4, 23, 22, tzinfo=timezone.utc)


def ended(second: float, error_class: str | None = None) -> Outcome:
    return Outcome(at=NOW + timedelta(seconds=second), error_class=error_class)


def after(*outcomes: Outcome, state: AdaptiveState | None = None, rule: Adaptive = RULE) -> AdaptiveState:
    return adapt(rule, state, outcomes, max((o.at for o in outcomes), default=NOW))


class TestAdaptiveRule:
    def test_begins_at_its_start(self):
        assert after().limit == 4

    def test_the_error_classes_are_those_of_the_contract(self):
        assert {ErrorClass.RATE_LIMIT, ErrorClass.OVERLOADED} == PRESSURE

    def test_one_error_is_chance(self):
        assert after(ended(0, "rate_limit")).limit == 4

    def test_a_burst_halves_the_limit_and_says_why(self):
        state = after(ended(0, ErrorClass.RATE_LIMIT), ended(59, ErrorClass.OVERLOADED))
        assert state.limit == 2
        assert state.told == f"4 to 2: {BURST} rate-limit or overload errors within 60 s"

    def test_errors_that_are_far_apart_are_no_burst(self):
        assert after(ended(0, "rate_limit"), ended(60, "rate_limit")).limit == 4

    def test_other_errors_say_nothing_about_the_limit(self):
        outcomes = [ended(i, c.value) for i, c in enumerate(ErrorClass) if c.value not in PRESSURE]
        assert after(*outcomes) == AdaptiveState(limit=4)

    def test_one_burst_halves_once_however_many_errors_it_has(self):
        assert after(*(ended(i / 10, "rate_limit") for i in range(100))).limit == 2

    def test_the_next_window_may_halve_again(self):
        burst = [ended(s, "rate_limit") for s in (0, 1, 61, 62)]
        assert after(*burst).limit == 1

    def test_it_never_falls_below_its_minimum(self):
        rule = Adaptive(start=4, min=3, max=16)
        state = after(*(ended(s, "rate_limit") for s in range(0, 600, 10)), rule=rule)
        assert state.limit == 3
        assert state.told.startswith("4 to 3")

    def test_steady_success_raises_by_one_each_interval(self):
        steady = [ended(s) for s in range(0, 901, 20)]
        state = after(*steady)
        assert state.limit == 4 + 3
        assert state.told.startswith("6 to 7: ")

    def test_success_that_did_not_use_the_limit_proves_nothing(self):
        assert after(ended(0), ended(400), ended(800)).limit == 4
        assert after(ended(0), ended(400), ended(800), ended(801)).limit == 5

    def test_an_error_begins_the_interval_anew(self):
        steady = [ended(s) for s in range(0, 590, 10)]
        assert after(*steady).limit == 5
        assert after(*steady, ended(295, "rate_limit")).limit == 4

    def test_it_never_rises_above_its_maximum(self):
        rule = Adaptive(start=4, min=1, max=5)
        assert after(*(ended(s) for s in range(0, 7200, 10)), rule=rule).limit == 5

    def test_outcomes_may_come_in_pieces_and_through_json(self):
        outcomes = [ended(s, "rate_limit" if s % 7 == 0 else None) for s in range(0, 2000, 13)]
        at_once, state = after(*outcomes), None
        for outcome in outcomes:
            state = adapt(RULE, state, [outcome], outcome.at)
            state = AdaptiveState.from_json(json.loads(json.dumps(state.to_json())))
        assert state == at_once

    def test_the_order_in_which_outcomes_are_told_does_not_matter(self):
        outcomes = [ended(0), ended(0, "rate_limit"), ended(3, "overloaded"), ended(5)]
        assert after(*reversed(outcomes)) == after(*outcomes)

    def test_an_outcome_from_a_clock_that_is_ahead_counts_as_of_now(self):
        state = adapt(RULE, None, [ended(9000, "rate_limit"), ended(9001, "rate_limit")], NOW)
        assert (state.limit, state.halved_at) == (2, NOW)

    def test_a_changed_rule_moves_the_limit_into_its_bounds(self):
        assert under(Adaptive(start=4, min=1, max=3), AdaptiveState(limit=9)).limit == 3
        assert under(Adaptive(start=4, min=4, max=8), AdaptiveState(limit=2)).limit == 4
        unchanged = AdaptiveState(limit=5)
        assert under(RULE, unchanged) is unchanged


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.sampled_from([None, "rate_limit", "overloaded", "timeout"]))),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_the_limit_stays_within_its_bounds_and_falls_at_most_once_a_window(events, low, more, most):
    rule = Adaptive(start=low + more, min=low, max=low + more + most)
    state, halvings = None, []
    for second, error_class in sorted(events, key=lambda e: e[0]):
        moment = NOW + timedelta(seconds=second)
        before = under(rule, state).limit
        state = adapt(rule, state, [Outcome(at=moment, error_class=error_class)], moment)
        assert rule.min <= state.limit <= rule.max
        assert max(rule.min, before // 2) <= state.limit <= before + 1
        if state.limit < before:
            halvings.append(moment)
    assert all(b - a >= timedelta(seconds=rule.window) for a, b in pairwise(halvings))


def test_against_a_service_that_can_bear_six_it_settles_around_six():
    """A service that refuses what is above six at once: the limit swings between three and seven."""
    state, limits = None, []
    for second in range(0, 36_000, 10):
        limit = under(RULE, state).limit
        outcomes = [ended(second, None if place < 6 else "rate_limit") for place in range(limit)]
        state = adapt(RULE, state, outcomes, ended(second).at)
        limits.append(limit)
    settled = limits[len(limits) // 2 :]
    assert min(settled) >= 3
    assert max(settled) <= 7
    assert 4.5 <= sum(settled) / len(settled) <= 6


def test_after_a_burst_known_ground_is_regained_by_windows_and_only_the_next_step_waits_an_interval():
    state = AdaptiveState(limit=8)
    state = adapt(RULE, state, [Outcome(at=NOW, error_class="rate_limit")] * BURST, NOW)
    assert state.limit == 4
    at, times = NOW, {4: 0}
    while state.limit < 8:
        at += timedelta(seconds=1)
        state = adapt(RULE, state, [Outcome(at=at)], at)
        times.setdefault(state.limit, (at - NOW).total_seconds())
    waits = [later - earlier for earlier, later in pairwise(times.values())]
    assert waits == [RULE.window, RULE.window, RULE.window, RULE.interval]
    assert AdaptiveState.from_json(state.to_json()) == state

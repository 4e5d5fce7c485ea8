from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_relay.core.advice import MAX_INTERVAL, TrackDuration, advise, percentile
from airflow_relay.core.barrier import CEILING_REASON, MAX_DURATION, BarrierSettings, TrackPhase

DEFAULTS = BarrierSettings()


def hours(number):
    return timedelta(hours=number)


def complete(run, track, number):
    return TrackDuration(run, track, TrackPhase.COMPLETE, hours(number))


def cut_off(run, track, number=14, reason=CEILING_REASON):
    return TrackDuration(run, track, TrackPhase.TAPPED_OUT, hours(number), reason)


def nights(count, *, shortest=lambda n: 3.0, longest=lambda n: 5.5):
    records = []
    for n in range(count):
        records += [
            complete(f"night-{n}", "track_c", shortest(n)),
            complete(f"night-{n}", "track_e", longest(n)),
        ]
    return records


# ---------------------------------------------------------------- the three rules


def test_runs_like_the_documents_example_give_about_the_documents_settings():
    advice = advise(nights(20, longest=lambda n: 7.0 if n > 17 else 5.5))
    assert advice.settings == BarrierSettings(
        first_poll=hours(3), poll_interval=timedelta(minutes=30), ceiling=hours(14)
    )
    assert advice.notes == ()
    assert advice.runs == 20


def test_first_poll_is_the_95th_percentile_of_each_runs_shortest_track():
    advice = advise(nights(100, shortest=lambda n: 1 + n / 100, longest=lambda n: 6))
    assert advice.settings.first_poll == timedelta(minutes=117)  # 1.94 h, rounded up to whole minutes


def test_the_shortest_track_may_be_another_one_each_night():
    records = [complete("1", "a", 1), complete("1", "b", 4), complete("2", "a", 4), complete("2", "b", 2)]
    assert advise(records).settings.first_poll == hours(2)


def test_ceiling_is_twice_the_95th_percentile_of_each_runs_longest_track():
    records = nights(20, longest=lambda n: 40 if n == 0 else 5)
    assert advise(records).settings.ceiling == hours(10)


@pytest.mark.parametrize(
    ("shortest", "longest", "minutes"),
    [
        (3, 5.5, 30),  # a sixth of the first poll
        (1.5, 1.6, 15),  # a sixth of the first poll
        (0.5, 1.5, 12),  # six polls for a typical run
        (6, 9, 30),  # never more than half an hour
    ],
)
def test_interval(shortest, longest, minutes):
    advice = advise(nights(20, shortest=lambda _: shortest, longest=lambda _: longest))
    assert advice.settings.poll_interval == timedelta(minutes=minutes)


def test_short_runs_are_proposed_in_whole_seconds():
    advice = advise(nights(20, shortest=lambda _: 15.2 / 3600, longest=lambda _: 40 / 3600))
    assert advice.settings == BarrierSettings(first_poll=16, poll_interval=5, ceiling=80)


def test_tracks_that_were_cut_off_say_nothing_about_how_long_the_work_takes():
    early_death = cut_off("night-0", "track_x", 0.1, reason="gave up")
    assert advise([*nights(20), early_death]).settings == advise(nights(20)).settings


# ---------------------------------------------------------------- the ceiling is no target


def hit_nights(hits, count=20):
    return nights(count, longest=lambda _: 10) + [cut_off(f"night-{n}", "track_b") for n in range(hits)]


def test_a_ceiling_that_is_hit_routinely_means_wrong_budgets_and_is_not_raised():
    advice = advise([*hit_nights(2), cut_off("night-1", "track_d")])
    assert advice.budgets_wrong
    assert advice.ceiling_hits == 2
    assert advice.settings.ceiling == DEFAULTS.ceiling
    assert list(advice.tapped_by_track.items()) == [("track_b", 2), ("track_d", 1)]
    assert any("budgets are wrong" in note and "track_b (2), track_d (1)" in note for note in advice.notes)


def test_a_single_hit_is_named_and_no_verdict():
    advice = advise(hit_nights(1))
    assert not advice.budgets_wrong
    assert advice.settings.ceiling == hours(20)
    assert any("hit in 1 of 20 runs" in note for note in advice.notes)
    assert any("above the current" in note for note in advice.notes)


def test_one_hit_among_few_runs_is_not_routine():
    assert not advise(hit_nights(1, count=3)).budgets_wrong


def test_rare_hits_among_many_runs_are_not_routine():
    assert not advise(hit_nights(2, count=21)).budgets_wrong


def test_other_reasons_for_giving_up_are_no_ceiling_hit():
    records = nights(20) + [cut_off(f"night-{n}", "track_b", reason="source offline") for n in range(20)]
    assert advise(records).ceiling_hits == 0


# ---------------------------------------------------------------- what a person should know


def test_without_records_the_current_settings_stay():
    current = BarrierSettings(first_poll=60, poll_interval=10, ceiling=600)
    advice = advise([], current=current)
    assert advice.settings == current
    assert "no completed track" in advice.notes[0]


def test_only_ceiling_hits_keep_the_settings_and_blame_the_budgets():
    advice = advise([cut_off("1", "a"), cut_off("2", "a")])
    assert advice.settings == DEFAULTS
    assert advice.budgets_wrong


def test_few_runs_are_called_few():
    assert "only 19 run(s)" in advise(nights(19)).notes[0]
    assert advise(nights(20)).notes == ()


def test_runs_that_will_wait_for_the_first_poll_are_counted():
    records = [*nights(19), complete("quick", "track_c", 1), complete("quick", "track_e", 2)]
    advice = advise(records)
    assert advice.early_runs == 1
    assert any("1 of 20 runs every track had completed before" in note for note in advice.notes)


def test_impossible_durations_are_left_out_and_counted():
    records = [*nights(20), complete("night-1", "x", -1), complete("night-2", "x", 24 * 367)]
    advice = advise(records)
    assert advice.settings == advise(nights(20)).settings
    assert any("left out 2 duration(s)" in note for note in advice.notes)


# ---------------------------------------------------------------- properties

relaxed = hypothesis_settings(deadline=None)
durations = st.timedeltas(-timedelta(days=2), MAX_DURATION * 2)
records_strategy = st.lists(
    st.builds(
        TrackDuration,
        run=st.sampled_from("12345"),
        track=st.sampled_from("abc"),
        phase=st.sampled_from([TrackPhase.COMPLETE, TrackPhase.TAPPED_OUT]),
        duration=durations,
        reason=st.sampled_from([None, CEILING_REASON]),
    )
)


@relaxed
@given(records_strategy, st.randoms())
def test_the_proposal_is_always_valid_and_the_order_of_records_does_not_matter(records, random):
    advice = advise(records)  # BarrierSettings refuses what contradicts itself
    assert advice.settings.poll_interval <= MAX_INTERVAL
    if advice.budgets_wrong:
        assert advice.settings.ceiling <= DEFAULTS.ceiling
    shuffled = list(records)
    random.shuffle(shuffled)
    again = advise(shuffled)
    assert again == advice


@relaxed
@given(st.lists(durations, min_size=1), st.integers(1, 100))
def test_percentile_is_the_smallest_value_that_the_share_does_not_exceed(values, percent):
    share = Fraction(percent, 100)
    found = percentile(values, share)
    assert found in values
    assert Fraction(sum(value <= found for value in values), len(values)) >= share
    below = [value for value in values if value < found]
    assert Fraction(len(below), len(values)) < share

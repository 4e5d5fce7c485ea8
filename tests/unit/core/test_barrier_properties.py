from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_relay.core.barrier import (
    TERMINAL_PHASES,
    BarrierSettings,
    ForceProceed,
    Proceed,
    Track,
    TrackPhase,
    TrackReport,
    Wait,
    ceiling_at,
    next_poll_at,
    poll,
)

DISPATCH = datetime(2026, 4, 21, 0, 0, tzinfo=timezone.utc)


def hours(number):
    return timedelta(hours=number)


NAMES = ("a", "b", "c", "d")
durations = st.integers(1, 20 * 3600).map(lambda seconds: timedelta(seconds=seconds))
reports_of_a_track = st.builds(
    TrackReport, phase=st.sampled_from(TrackPhase), run_alive=st.sampled_from([None, True, False])
)
readings = st.dictionaries(st.sampled_from((*NAMES, "stranger")), reports_of_a_track)
track_lists = st.lists(
    st.builds(Track, st.sampled_from(NAMES), st.none() | durations), unique_by=lambda track: track.name
)


@st.composite
def any_settings(draw):
    ceiling = draw(durations)
    first = timedelta(seconds=draw(st.integers(0, int(ceiling.total_seconds()))))
    return BarrierSettings(first_poll=first, poll_interval=draw(durations), ceiling=ceiling)


relaxed = hypothesis_settings(deadline=None)


@relaxed
@given(track_lists, st.timedeltas(hours(-1), hours(30)), any_settings(), readings)
def test_one_poll_is_idempotent_and_within_bounds(tracks, elapsed, settings, reports):
    now = DISPATCH + elapsed
    decision = poll(tracks, DISPATCH, now, settings, reports=reports)
    assert decision == poll(tracks, DISPATCH, now, settings, reports=reports)
    names = {track.name for track in tracks}
    assert set(decision.phases) == names
    assert decision.done == isinstance(decision, Proceed)
    if isinstance(decision, Wait):
        assert now < decision.until <= ceiling_at(DISPATCH, settings)
        assert set(decision.results) < names
    else:
        assert set(decision.results) == names
    if elapsed >= settings.ceiling:
        assert not isinstance(decision, Wait)
    if isinstance(decision, ForceProceed):
        assert elapsed >= settings.ceiling
        assert decision.tapped
    ended = {name for name, report in reports.items() if report.phase in TERMINAL_PHASES}
    assert {end.name for end in decision.tapped} <= names - ended


@relaxed
@given(
    track_lists.filter(len),
    any_settings().filter(lambda s: (s.ceiling - s.first_poll) // s.poll_interval < 50),
    st.lists(readings, min_size=1, max_size=60),
    st.lists(st.timedeltas(timedelta(0), hours(2)), min_size=1, max_size=60),
)
def test_over_a_whole_run_ends_stay_and_polls_are_few(tracks, settings, script, delays):
    finished, tapped, polls = {}, [], 0
    now = DISPATCH + settings.first_poll
    while True:
        reports = script[polls % len(script)]
        decision = poll(tracks, DISPATCH, now, settings, reports=reports, finished=finished)
        polls += 1
        assert finished.items() <= decision.results.items()
        assert not {end.name for end in decision.tapped} & set(finished)
        tapped += [end.name for end in decision.tapped]
        finished = decision.results
        if not isinstance(decision, Wait):
            break
        now = decision.until + delays[polls % len(delays)]
    assert len(tapped) == len(set(tapped))
    assert polls <= math.ceil(settings.ceiling / settings.poll_interval) + 1
    again = poll(tracks, DISPATCH, now + hours(1), settings, reports=script[0], finished=finished)
    assert isinstance(again, Proceed)
    assert again.results == finished


@relaxed
@given(st.timedeltas(timedelta(0), hours(30)), any_settings())
def test_planned_polls_lie_on_the_grid_or_at_the_ceiling(elapsed, settings):
    planned = next_poll_at(DISPATCH, DISPATCH + elapsed, settings) - DISPATCH
    on_grid = (planned - settings.first_poll) % settings.poll_interval == timedelta(0)
    assert on_grid or planned == settings.ceiling
    assert settings.first_poll <= planned <= settings.ceiling

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_relay.core.barrier import (
    TERMINAL_PHASES,
    BarrierSettings,
    Proceed,
    Track,
    TrackPhase,
    Wait,
    poll,
)
from airflow_relay.core.track_status import (
    CLOCK_SKEW,
    MAX_DEPTH,
    MAX_TEXT,
    StatusRead,
    UnknownThisTime,
    parse_phase,
    parse_status,
)

DISPATCH = datetime(2026, 4, 21, 0, 0, tzinfo=timezone.utc)
EPOCH = int(DISPATCH.timestamp())
NOW = DISPATCH + timedelta(hours=5)
FIRST_POLL = DISPATCH + timedelta(hours=3)
TRACKS = ("track_a", "track_b", "track_c", "track_d")

SEED = {
    "dispatch_epoch": EPOCH,
    "track_a": {"phase": "complete", "completed_at": EPOCH + 9000, "rows": 12},
    "track_b": {"phase": "running"},
    "track_c": {"phase": "complete", "completed_at": EPOCH + 7200.5},
    "track_d": {"phase": "tapped_out", "reason": "source offline — gave up"},
}
ALL_COMPLETE = {"dispatch_epoch": EPOCH} | {name: {"phase": "complete"} for name in TRACKS}


def read(content, *, now=NOW, dispatched_at=None):
    if isinstance(content, dict):
        content = json.dumps(content)
    return parse_status(
        content, expected=TRACKS, now=now, first_poll_at=FIRST_POLL, dispatched_at=dispatched_at
    )


# ---------------------------------------------------------------- the document's format


def test_the_documents_file_is_read():
    status = read(SEED)
    assert status.dispatched_at == DISPATCH
    assert {name: report.phase for name, report in status.reports.items()} == {
        "track_a": TrackPhase.COMPLETE,
        "track_b": TrackPhase.RUNNING,
        "track_c": TrackPhase.COMPLETE,
        "track_d": TrackPhase.TAPPED_OUT,
    }
    assert status.reports["track_a"].completed_at == DISPATCH + timedelta(seconds=9000)
    assert status.reports["track_a"].details == {"rows": 12}
    assert status.reports["track_c"].completed_at == DISPATCH + timedelta(seconds=7200.5)
    assert status.reports["track_d"].reason == "source offline — gave up"
    assert status.reports["track_d"].run_alive is None
    assert status.notes == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_every_encoding_of_json_is_read(encoding):
    status = read(json.dumps(SEED, ensure_ascii=False).encode(encoding))
    assert status.reports["track_d"].reason == "source offline — gave up"


def test_the_barrier_opens_on_a_file_that_says_so():
    tracks = [Track(name) for name in TRACKS]
    opened = poll(tracks, DISPATCH, NOW, BarrierSettings(), reports=read(ALL_COMPLETE).reports)
    assert isinstance(opened, Proceed)
    waiting = poll(tracks, DISPATCH, NOW, BarrierSettings(), reports=read(SEED).reports)
    assert isinstance(waiting, Wait)


# ---------------------------------------------------------------- missing and half-written files


def test_a_missing_file_before_the_first_poll_is_normal():
    status = read(None, now=FIRST_POLL - timedelta(seconds=1))
    assert isinstance(status, UnknownThisTime)
    assert status.normal


def test_a_missing_file_from_the_first_poll_on_is_worth_a_warning():
    status = read(None, now=FIRST_POLL)
    assert isinstance(status, UnknownThisTime)
    assert not status.normal
    assert "check the path" in status.reason


@pytest.mark.parametrize(
    "content",
    [
        b"", b"   \n", b"{", b"null", b"[]", b'"complete"', b"17", b"true", b"\xff\xfe\x00", b"\x00" * 40,
        b'{"track_a": {"phase": "complete"}} trailing', b"{'track_a': 1}", b'{"a": "\xc3',
        b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000,
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_what_is_no_whole_json_object_is_unknown_this_time(content):
    status = read(content)
    assert isinstance(status, UnknownThisTime)
    assert status.reason
    assert not status.normal


@pytest.mark.parametrize("indent", [None, 2])
def test_no_prefix_of_a_file_in_writing_is_ever_a_status(indent):
    whole = json.dumps(ALL_COMPLETE, indent=indent).encode()
    assert isinstance(read(whole), StatusRead)
    for length in range(len(whole)):
        assert isinstance(read(whole[:length]), UnknownThisTime), whole[:length]


def test_a_short_text_written_over_a_long_one_is_unknown_this_time():
    long, short = json.dumps(ALL_COMPLETE, indent=20), json.dumps(SEED)
    assert len(short) < len(long)
    overwritten = short + long[len(short) :]
    assert isinstance(read(overwritten), UnknownThisTime)


def test_two_answers_under_one_name_are_unknown_this_time():
    status = read('{"track_a": {"phase": "running"}, "track_a": {"phase": "complete"}}')
    assert isinstance(status, UnknownThisTime)
    assert "twice" in status.reason


# ---------------------------------------------------------------- wrong types


@pytest.mark.parametrize("value", ["complete", ["complete"], 1, True, None])
def test_a_track_that_is_no_object_is_unknown_and_named(value):
    status = read(SEED | {"track_a": value})
    assert status.reports["track_a"].phase is TrackPhase.UNKNOWN
    assert status.reports["track_c"].phase is TrackPhase.COMPLETE
    assert len(status.notes) == 1
    assert "track_a" in status.notes[0]


@pytest.mark.parametrize(
    "phase", [1, True, ["complete"], {"complete": True}, "", "completed", "done", "ok", "failed"]
)
def test_a_phase_that_is_not_known_is_unknown_and_named(phase):
    status = read(SEED | {"track_a": {"phase": phase}})
    assert status.reports["track_a"].phase is TrackPhase.UNKNOWN
    assert "track_a" in status.notes[0]


@pytest.mark.parametrize("value", [{}, {"phase": None}, {"started": 1}])
def test_a_track_without_a_phase_is_pending(value):
    assert read(SEED | {"track_b": value}).reports["track_b"].phase is TrackPhase.PENDING


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("Complete", TrackPhase.COMPLETE),
        (" COMPLETE\n", TrackPhase.COMPLETE),
        ("tapped-out", TrackPhase.TAPPED_OUT),
        ("Tapped Out", TrackPhase.TAPPED_OUT),
        ("RUNNING", TrackPhase.RUNNING),
        ("pending", TrackPhase.PENDING),
        ("unknown", TrackPhase.UNKNOWN),
        ("complete?", TrackPhase.UNKNOWN),
        ("incomplete", TrackPhase.UNKNOWN),
        ("not complete", TrackPhase.UNKNOWN),
    ],
)
def test_phases_are_normalised_and_never_guessed(text, phase):
    assert parse_phase(text) is phase


def test_a_reason_that_is_no_text_is_dropped_and_named():
    status = read(SEED | {"track_d": {"phase": "tapped_out", "reason": ["x"]}})
    assert status.reports["track_d"].phase is TrackPhase.TAPPED_OUT
    assert status.reports["track_d"].reason is None
    assert "reason" in status.notes[0]


def test_other_entries_of_the_file_are_left_alone():
    status = read(SEED | {"version": 3, "host": "x", "settings": {"a": 1}})
    assert set(status.reports) == set(TRACKS)
    assert status.notes == ()


def test_a_track_that_nobody_dispatched_is_passed_on():
    assert read(SEED | {"track_z": {"phase": "running"}}).reports["track_z"].phase is TrackPhase.RUNNING


# ---------------------------------------------------------------- times

ABSURD = [
    "-1",
    "0",
    "true",
    '"1776729600"',
    "[]",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "1" + "0" * 400,
    "1e300",
]


@pytest.mark.parametrize(
    "text", [*ABSURD, str(EPOCH * 1000), str(EPOCH + 6 * 3600)], ids=lambda text: text[:14]
)
def test_absurd_epochs_are_refused_and_named(text):
    content = json.dumps(SEED).replace(f'"dispatch_epoch": {EPOCH}', f'"dispatch_epoch": {text}')
    status = read(content)
    assert status.dispatched_at is None
    assert "dispatch_epoch" in status.notes[0]
    assert status.reports["track_a"].phase is TrackPhase.COMPLETE


@pytest.mark.parametrize("text", ABSURD, ids=lambda text: text[:14])
def test_an_absurd_completed_at_is_dropped_but_the_end_counts(text):
    status = read(
        f'{{"dispatch_epoch": {EPOCH}, "track_a": {{"phase": "complete", "completed_at": {text}}}}}'
    )
    assert status.reports["track_a"].phase is TrackPhase.COMPLETE
    assert status.reports["track_a"].completed_at is None
    assert "completed_at of track 'track_a'" in status.notes[0]


def test_milliseconds_are_recognised_in_the_note():
    assert "milliseconds" in read(SEED | {"dispatch_epoch": EPOCH * 1000}).notes[0]


def test_a_missing_dispatch_epoch_is_noted():
    status = read({"track_a": {"phase": "running"}})
    assert status.dispatched_at is None
    assert "dispatch_epoch is missing" in status.notes[0]


def test_a_file_of_an_earlier_run_does_not_count():
    yesterday = ALL_COMPLETE | {"dispatch_epoch": EPOCH - 86400}
    status = read(yesterday, dispatched_at=DISPATCH)
    assert isinstance(status, UnknownThisTime)
    assert "earlier run" in status.reason


def test_clocks_may_differ_a_little():
    skewed = ALL_COMPLETE | {"dispatch_epoch": EPOCH - CLOCK_SKEW.total_seconds()}
    assert isinstance(read(skewed, dispatched_at=DISPATCH), StatusRead)


@pytest.mark.parametrize("phase", sorted(TERMINAL_PHASES))
def test_an_end_from_before_the_dispatch_does_not_count(phase):
    left_over = {"phase": phase.value, "completed_at": EPOCH - 3600}
    status = read(SEED | {"track_a": left_over})
    assert status.reports["track_a"].phase is TrackPhase.UNKNOWN
    assert "left over" in status.notes[0]


# ---------------------------------------------------------------- what can be stored


def test_foreign_text_is_made_storable():
    status = read(
        r'{"track_d": {"phase": "tapped_out", "reason": "a\u0000b\ud800",'
        r' "x": [1e999, NaN, "\u0000", {"\ud800": 1}]},'
        r'"track_\u0000z": {"phase": "running"}}'
    )
    report = status.reports["track_d"]
    assert report.reason == "ab?"
    assert report.details == {"x": [None, None, "", {"?": 1}]}
    stored = json.dumps([report.details, report.reason, list(status.reports)], allow_nan=False).encode()
    assert b"\\u0000" not in stored


def test_a_name_is_never_cleaned_into_a_real_tracks_name():
    status = read(r'{"track_a": {"phase": "running"}, "track_a\u0000": {"phase": "complete"}}')
    assert status.reports["track_a"].phase is TrackPhase.RUNNING
    assert len(status.reports) == 2


def test_long_reasons_are_cut():
    status = read(SEED | {"track_d": {"phase": "tapped_out", "reason": "x" * 50_000}})
    assert len(status.reports["track_d"].reason) == MAX_TEXT


def test_deep_details_are_cut_off_and_the_phase_still_counts():
    deep = "[" * 400 + "]" * 400
    status = read(f'{{"track_a": {{"phase": "complete", "deep": {deep}}}}}')
    assert status.reports["track_a"].phase is TrackPhase.COMPLETE
    assert json.dumps(status.reports["track_a"].details).count("[") == MAX_DEPTH


# ---------------------------------------------------------------- properties

relaxed = hypothesis_settings(deadline=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
track_objects = st.fixed_dictionaries(
    {},
    optional={
        "phase": json_values | st.sampled_from(["complete", "running", "tapped_out", "Complete "]),
        "reason": json_values,
        "completed_at": json_values | st.integers(EPOCH - 10**6, EPOCH + 10**6),
        "extra": json_values,
    },
)
documents = st.fixed_dictionaries(
    {}, optional={"dispatch_epoch": json_values} | dict.fromkeys(TRACKS, track_objects | json_values)
)


@relaxed
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(content):
    assert isinstance(read(content), (StatusRead, UnknownThisTime))


@relaxed
@given(st.text(max_size=200))
def test_arbitrary_text_never_raises(content):
    assert isinstance(read(content), (StatusRead, UnknownThisTime))


@relaxed
@given(documents, st.sampled_from([None, DISPATCH]))
def test_any_document_is_read_and_only_a_plain_end_is_an_end(document, dispatched_at):
    status = read(document, dispatched_at=dispatched_at)
    if isinstance(status, UnknownThisTime):
        assert dispatched_at is not None
        return
    assert set(status.reports) == set(document) & set(TRACKS)
    for name, report in status.reports.items():
        if report.phase in TERMINAL_PHASES:
            written = document[name]["phase"].strip().casefold().replace("-", "_").replace(" ", "_")
            assert written == report.phase.value
        json.dumps(report.details, allow_nan=False).encode()
        (report.reason or "").encode()
    for note in status.notes:
        note.encode()


@relaxed
@given(documents, st.data())
def test_a_truncated_document_never_says_done(document, data):
    whole = json.dumps(document).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    status = read(whole[:cut])
    assert isinstance(status, UnknownThisTime)

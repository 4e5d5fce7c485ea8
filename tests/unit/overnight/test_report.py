"""The overnight report: rendered from what the tracks found, with the tapped-out ones named."""

from __future__ import annotations

from datetime import datetime, timezone
from html.parser import HTMLParser

import pytest
from include.overnight.analyses import ANALYSES, follow_up
from include.overnight.report import render_report, write_report

from airflow_relay.ledger.tracks import checked_result

NOW = datetime(2026, 4, 22, 6, 30, tzinfo=timezone.utc)
BOLD = "<b>bold</b>"


class Reader(HTMLParser):
    """Collects what the report shows, and whether its elements are balanced."""

    VOID = frozenset({"meta"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tracks, self.tapped, self.text = [], [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        found = dict(attrs)
        self.tracks += [found["data-track"]] if "data-track" in found else []
        self.tapped += [found["data-tapped-out"]] if "data-tapped-out" in found else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def found(title, rows=((BOLD, 3),)):
    return {
        "title": title,
        "summary": f"{title} in short.",
        "figures": {"things": 7},
        "columns": ["name", "count"],
        "rows": [list(row) for row in rows],
        "subjects": [],
    }


def barrier(**tapped_out):
    tracks = {
        "settings": {"phase": "complete", "result": found("Settings")},
        **{name: {"phase": "tapped_out", "result": None} for name in tapped_out},
    }
    outcome = "force_proceed" if tapped_out else "proceed"
    return {"outcome": outcome, "elapsed_h": 5.5, "tracks": tracks, "tapped_out": tapped_out}


def test_report_has_a_section_for_each_completed_track_and_names_the_others():
    html = render_report(barrier(metrics="[TAPPED — x]", other=None), found("Further"), now=NOW)
    read = Reader(html)
    assert read.open == []
    assert read.tracks == ["settings", "follow_up"]
    assert read.tapped == ["metrics", "other"]
    assert (
        "1 of 3 tracks completed; the barrier opened 5.50 h after the dispatch, by its ceiling" in read.text
    )
    assert "[TAPPED — x]" in read.text
    assert "no reason given" in read.text
    assert "Overnight report, 22 April 2026" in read.text


def test_everything_from_the_tracks_is_escaped():
    html = render_report(barrier(**{BOLD: BOLD}), found(BOLD), now=NOW)
    assert BOLD not in html
    assert BOLD in Reader(html).text


def test_report_without_tapped_out_tracks_has_no_such_section_and_one_without_follow_up_says_so():
    assert Reader(render_report(barrier(), found("F"), now=NOW)).tapped == []
    assert Reader(render_report(barrier(), None, now=NOW)).tapped == ["follow_up"]


def test_report_of_a_run_replaces_its_earlier_one(tmp_path):
    first = write_report("<p>1", tmp_path, "manual__2026-04-22T06:30:00+00:00")
    second = write_report("<p>2", tmp_path, "manual__2026-04-22T06:30:00+00:00")
    assert first == second
    assert second.read_text() == "<p>2"
    assert first != write_report("<p>3", tmp_path, "another")


@pytest.fixture(scope="module")
def findings():
    return {name: analyse().to_json() for name, analyse in ANALYSES.items()}


def test_each_analysis_finds_something_that_the_ledger_can_keep(findings):
    for name, result in findings.items():
        assert checked_result(result, name) == result
        assert result["rows"], name
        assert result["subjects"], name
        assert max(result["figures"].values()) > 10, name
    assert findings["settings"]["figures"]["sections"] < findings["settings"]["figures"]["options"]


def test_follow_up_counts_where_the_findings_occur(findings):
    further = follow_up([findings["settings"], findings["deprecations"]])
    counts = dict(further["rows"])
    assert counts["RemovedInAirflow4Warning"] > 0
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert follow_up([])["figures"]["names"] == 0

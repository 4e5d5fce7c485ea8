from __future__ import annotations

import pytest

from airflow_relay.core.states import ItemState
from demo_ledger import ItemProgress, read_progress
from demo_report import latency_table, median_latency, report

STAGES = ["research", "write"]


def item(key: str, state: ItemState = ItemState.DONE, **fields) -> ItemProgress:
    given = {"stage": "write", "status": "drafted", "seconds": 61.24, "error": None, **fields}
    return ItemProgress(key=key, state=state, **given)


def test_the_table_shows_each_visit_of_a_stage():
    items = [
        item("first", latencies={"research": [0.5], "write": [0.25, 1.0]}),
        item("second", ItemState.DISCARDED, seconds=None),
    ]
    assert latency_table(items, STAGES).splitlines() == [
        "item    state      end to end  research      write",
        "first   done           61.2 s      0.50  0.25 1.00",
        "second  discarded           -         -          -",
    ]


def test_the_median_is_over_all_stages_and_items():
    items = [item("a", latencies={"research": [0.1], "write": [0.2, 0.9]})]
    assert median_latency(items) == pytest.approx(0.2)
    assert median_latency([item("a")]) is None


def test_the_report_names_pages_dead_items_and_wrong_citations(tmp_path):
    page = tmp_path / "pages" / "a.html"
    page.parent.mkdir()
    page.touch()
    dead = item("b", ItemState.DEAD, error="the agent refused")
    text = report([item("a"), dead], stages=STAGES, output=tmp_path, problems=["a.html: no source"])
    assert str(page) in text
    assert "published: 1 pages" in text
    assert "b is dead: the agent refused" in text
    assert "WRONG a.html: no source" in text


def test_the_report_says_so_when_all_citations_are_right(tmp_path):
    text = report([item("a")], stages=STAGES, output=tmp_path, problems=[])
    assert "citations: all found" in text
    assert "WRONG" not in text


def test_without_a_ledger_there_is_no_progress_yet(tmp_path):
    assert read_progress(tmp_path / "ledger.db", "content") == []
    assert not (tmp_path / "ledger.db").exists()

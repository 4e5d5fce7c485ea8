from __future__ import annotations

import pytest

from airflow_relay.local_agent.extractive.draft import parse_draft
from airflow_relay.local_agent.extractive.polish import unique_slug


def test_a_page_gets_what_it_needs_around_its_text(do, draft):
    page = do("publish", draft=draft)
    assert page["slug"] == "how-airflow-limits-parallel-runs"
    assert 0 < len(page["meta_description"]) <= 155
    assert page["meta_description"].rstrip("…") in " ".join(s["text"] for s in draft["summary"])
    assert [entry["heading"] for entry in page["toc"]] == [s["heading"] for s in page["draft"]["sections"]]
    assert len({entry["anchor"] for entry in page["toc"]}) == len(page["toc"])
    assert page["reading_minutes"] >= 1
    assert page["word_count"] == draft["word_count"]


def test_polishing_changes_no_word(do, draft):
    page = do("improve", draft=draft)
    assert parse_draft(page["draft"]).all_sentences == parse_draft(draft).all_sentences


def test_spaces_repeats_and_empty_sections_go(do):
    draft = {
        "title": "  A   title ",
        "sections": [
            {"heading": "One", "sentences": [{"text": "Pools  have slots.", "citations": [1]}]},
            {"heading": "Two", "sentences": [{"text": "Pools have slots.", "citations": [1]}]},
        ],
    }
    polished = do("publish", draft=draft)["draft"]
    assert polished["title"] == "A title"
    assert polished["sections"] == [
        {"heading": "One", "sentences": [{"text": "Pools have slots.", "citations": [1]}]}
    ]


@pytest.mark.parametrize(
    ("title", "taken", "slug"),
    [
        ("Limits & Pools", [], "limits-pools"),
        ("Limits & Pools", ["limits-pools", "limits-pools-2"], "limits-pools-3"),
        ("Über Grenzen", [], "uber-grenzen"),
        ("../../etc/passwd", [], "etc-passwd"),
        ("???", [], "page"),
    ],
)
def test_slugs_are_safe_and_unique(title, taken, slug):
    assert unique_slug(title, taken) == slug

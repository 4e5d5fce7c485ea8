from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.local_agent.extractive.draft import parse_draft
from airflow_relay.local_agent.extractive.readability import measure, syllable_count
from airflow_relay.local_agent.extractive.text import plain, sentences, stems


def test_markup_goes_and_words_stay():
    text = "The ``scheduler`` reads :ref:`the docs <docs>`, **once**\nper `loop <https://x.y>`__."
    text += "\n\n* one item\n* two"
    assert plain(text) == "The scheduler reads the docs, once per loop. one item two"


def test_headings_directives_and_rules_are_no_sentences():
    text = "Title here\n==========\n\n.. note::\n\n    A pool has slots. It can be full.\n\n:param x: y\n"
    assert sentences(text) == ["Title here", "A pool has slots.", "It can be full."]


def test_abbreviations_do_not_end_a_sentence():
    text = "Use a pool, e.g. The Default Pool, or none. Then go on."
    assert sentences(text) == ["Use a pool, e.g. The Default Pool, or none.", "Then go on."]


@given(st.text(alphabet="abcAB .!?\n*`:<>_-#=1", max_size=200))
def test_sentences_are_pieces_of_the_plain_text(text):
    whole = plain(text)
    assert all(sentence in whole for sentence in sentences(text))


def test_a_setting_is_found_by_its_name_and_by_its_words():
    assert {"max_active_runs", "max", "activ", "run"} <= set(stems("Set max_active_runs to one"))


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("the", 1),
        ("queue", 1),
        ("database", 3),
        ("scheduler", 3),
        ("available", 4),
        ("created", 3),
        ("apple", 2),
    ],
)
def test_syllables(word, count):
    assert syllable_count(word) == count


def test_readability_follows_the_published_formulas():
    figures = measure(["The cat sat on the mat."])
    assert figures.flesch_reading_ease == pytest.approx(206.835 - 1.015 * 6 - 84.6, abs=0.05)
    assert figures.flesch_kincaid_grade == pytest.approx(0.39 * 6 + 11.8 - 15.59, abs=0.05)
    assert measure([]).words == 0


def test_a_draft_survives_its_record():
    draft = parse_draft("# T\n\nIntro here [1].\n\n## A\n\nOne thing. [2] Another, with two [1, 3].")
    assert [sentence.citations for sentence in draft.all_sentences] == [(1,), (2,), (1, 3)]
    assert [sentence.text for sentence in draft.body] == ["One thing.", "Another, with two."]
    assert parse_draft(draft.to_record()) == draft

from __future__ import annotations

import pytest
from tests.support.agent_texts import QUESTION

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.draft import parse_draft
from airflow_relay.local_agent.extractive.text import plain


def sentences_of(draft):
    return parse_draft(draft).all_sentences


def rewrite(do, researched, feedback, **more):
    return do("write", question=QUESTION, passages=researched["passages"], feedback=feedback, **more)


def test_every_sentence_stands_in_the_passage_it_cites(draft, researched):
    quotes = {passage["n"]: plain(passage["quote"]) for passage in researched["passages"]}
    assert len(sentences_of(draft)) >= 6
    for sentence in sentences_of(draft):
        assert len(sentence.citations) == 1
        assert sentence.text.rstrip(" …") in quotes[sentence.citations[0]]


def test_the_draft_has_title_summary_sections_and_its_references(draft):
    assert draft["title"] == "How Airflow limits parallel runs"
    assert 1 <= len(draft["summary"]) <= 2
    assert all(section["heading"] and section["sentences"] for section in draft["sections"])
    cited = {number for sentence in sentences_of(draft) for number in sentence.citations}
    assert {reference["n"] for reference in draft["references"]} == cited
    assert all(reference["line"] for reference in draft["references"])


def test_the_same_input_gives_the_same_draft(do, draft, researched):
    again = do(
        "write", question=QUESTION, title="How Airflow limits parallel runs", passages=researched["passages"]
    )
    assert again == draft


def test_a_sentence_that_feedback_names_is_dropped(do, researched, draft):
    bad = draft["sections"][0]["sentences"][0]["text"]
    changed = rewrite(do, researched, [{"code": "uncited", "message": "no citation", "sentence": bad}])
    assert bad not in [sentence.text for sentence in sentences_of(changed)]
    assert changed["feedback_applied"] == ["uncited"]


def test_long_sentences_are_left_out_or_cut_at_a_clause_and_stay_true(do, researched, draft):
    longest = max(len(sentence.text.split()) for sentence in sentences_of(draft))
    assert longest > 25
    changed = rewrite(do, researched, ["Please use shorter sentences, some are too long."])
    quotes = " ".join(plain(passage["quote"]) for passage in researched["passages"])
    assert max(len(sentence.text.rstrip(" …").split()) for sentence in sentences_of(changed)) <= 25
    assert all(sentence.text.rstrip(" …") in quotes for sentence in sentences_of(changed))


def test_a_cut_sentence_says_that_it_is_cut(do):
    quote = (
        "The scheduler examines the runs that are queued; it does so in every loop, "
        "for every pipeline in the whole deployment, "
        "and it stops when the configured number of runs has been looked at by the loop."
    )
    passages = [{"n": 1, "quote": quote}]
    draft = do("write", question="What does the scheduler examine?", passages=passages, feedback=["shorten"])
    assert next(s.text for s in sentences_of(draft)) == (
        "The scheduler examines the runs that are queued; it does so in every loop, "
        "for every pipeline in the whole deployment …"
    )


def test_hard_sentences_give_way_to_easier_ones(do, researched, draft):
    changed = rewrite(do, researched, [{"code": "hard_to_read", "message": "too hard"}])
    before = do("self_review", draft=draft, passages=researched["passages"])["readability"]
    after = do("self_review", draft=changed, passages=researched["passages"])["readability"]
    assert after["flesch_reading_ease"] > before["flesch_reading_ease"]


def test_a_missing_term_is_brought_in(do):
    passages = [
        {"n": 1, "quote": "Pools limit how many tasks run in parallel. The pool has a number of slots."},
        {"n": 2, "quote": "Deferred tasks leave their slot free unless the pool counts them."},
    ]
    plain_draft = do("write", question="What do pools limit?", passages=passages)
    asked = do(
        "write",
        question="What do pools limit?",
        passages=passages,
        feedback=[{"code": "missing_term", "message": "…", "term": "deferred"}],
    )
    assert "Deferred" not in plain_draft["summary"][0]["text"]
    assert "Deferred" in asked["summary"][0]["text"]


def test_a_long_title_is_cut_at_a_word_when_asked(do, researched):
    title = "A title that goes on and on about the limits that Airflow knows for its runs"
    assert rewrite(do, researched, [], title=title)["title"] == title
    shorter = rewrite(do, researched, [{"code": "title_length", "message": "too long"}], title=title)["title"]
    assert len(shorter) <= 65
    assert title.startswith(shorter.rstrip("…"))


def test_code_and_sentences_that_lean_on_others_are_not_quoted(do):
    quote = (
        "This is configurable with a setting of the same name somewhere else.\n\n"
        ">>> run(conf={'a': 1}) shows how the runs are started by hand.\n\n"
        "The scheduler starts the runs of a pipeline in the order of their dates."
    )
    draft = do("write", question="Which runs does the scheduler start?", passages=[{"n": 1, "quote": quote}])
    assert {s.text for s in sentences_of(draft)} == {
        "The scheduler starts the runs of a pipeline in the order of their dates."
    }


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"passages": [{"n": 1, "quote": "short"}]}, "no whole sentence"),
        ({"passages": [{"n": 1}]}, "passage 1 has no text"),
        ({"passages": "x"}, "must be a list"),
        ({"passages": [{"quote": "The pool has a fixed number of slots."}], "feedback": "x"}, "'feedback'"),
        ({"passages": [{"quote": "The pool has a fixed number of slots."}], "feedback": [3]}, "each item"),
    ],
)
def test_unusable_input_is_refused_by_name(do, payload, message):
    with pytest.raises(InvalidInputError, match=message):
        do("write", question="What is a pool?", **payload)

from __future__ import annotations

import copy

from tests.support.agent_texts import QUESTION


def codes(review):
    return [finding["code"] for finding in review["feedback"]]


def test_a_draft_of_true_citations_is_ok(do, clean, researched):
    review = do("self_review", draft=clean, passages=researched["passages"], question=QUESTION)
    assert review["verdict"] == "ok", review["feedback"]
    assert review["citations"]["true"] == review["citations"]["checked"] > 5
    assert review["coverage"]["share"] >= 0.6


def test_a_sentence_that_its_passage_does_not_hold_is_found(do, clean, researched):
    forged = copy.deepcopy(clean)
    forged["sections"][0]["sentences"][0]["text"] = "The scheduler has no limits at all and needs none."
    review = do("self_review", draft=forged, passages=researched["passages"])
    assert review["verdict"] == "revise"
    assert codes(review) == ["citation_mismatch"]
    assert review["feedback"][0]["sentence"] == "The scheduler has no limits at all and needs none."


def test_a_changed_word_is_found(do, researched, clean):
    forged = copy.deepcopy(clean)
    sentence = forged["summary"][0]
    sentence["text"] = sentence["text"].replace("not ", "")
    assert sentence["text"] != clean["summary"][0]["text"]
    assert "citation_mismatch" in codes(do("self_review", draft=forged, passages=researched["passages"]))


def test_a_citation_of_the_wrong_passage_is_found(do, clean, researched):
    forged = copy.deepcopy(clean)
    forged["summary"][0]["citations"] = [99]
    assert codes(do("self_review", draft=forged, passages=researched["passages"])) == ["citation_mismatch"]


def test_an_uncited_sentence_is_found(do, clean, researched):
    forged = copy.deepcopy(clean)
    forged["summary"][0]["citations"] = []
    review = do("self_review", draft=forged, passages=researched["passages"])
    assert codes(review) == ["uncited"]
    assert review["citations"]["uncited"] == 1


def test_the_question_must_be_answered(do, clean, researched):
    review = do(
        "self_review",
        draft=clean,
        passages=researched["passages"],
        question="Which kubernetes sidecar encrypts webhook payloads?",
    )
    assert "missing_term" in codes(review)
    assert {finding.get("term") for finding in review["feedback"]} >= {"kubernetes", "sidecar", "webhook"}


def test_very_long_and_repeated_sentences_are_found(do):
    long = "The scheduler " + "and the very patient triggerer " * 10 + "wait."
    text = f"{long} [1] A pool has a fixed number of slots. [1] A pool has a fixed number of slots. [1]"
    review = do("self_review", draft=text, passages=[{"n": 1, "quote": text}], question="scheduler pool")
    assert {"long_sentence", "repetition"} <= set(codes(review))


def test_a_first_draft_with_a_long_sentence_is_sent_back(do, draft, researched):
    review = do("self_review", draft=draft, passages=researched["passages"], question=QUESTION)
    assert set(codes(review)) == {"long_sentence"}
    rewritten = do("write", question=QUESTION, passages=researched["passages"], feedback=review["feedback"])
    again = do("self_review", draft=rewritten, passages=researched["passages"], question=QUESTION)
    assert again["verdict"] == "ok", again["feedback"]


def test_review_and_rewrite_end_in_an_ok_within_one_round(do, clean, researched):
    forged = copy.deepcopy(clean)
    forged["sections"][0]["sentences"][0]["citations"] = []
    forged["summary"][0]["text"] = "Everything is always perfectly limited."
    review = do("self_review", draft=forged, passages=researched["passages"], question=QUESTION)
    assert review["verdict"] == "revise"
    rewritten = do(
        "write",
        question=QUESTION,
        passages=researched["passages"],
        draft=forged,
        feedback=review["feedback"],
    )
    again = do("self_review", draft=rewritten, passages=researched["passages"], question=QUESTION)
    assert again["verdict"] == "ok", again["feedback"]

"""Job ``self_review``: are the citations true, is the question answered, can it be read?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.extractive.draft import Draft, Sentence, parse_draft, parse_passages
from airflow_relay.local_agent.extractive.feedback import REVIEWED_SENTENCE_WORDS
from airflow_relay.local_agent.extractive.readability import measure
from airflow_relay.local_agent.extractive.similarity import cosine_matrix
from airflow_relay.local_agent.extractive.text import plain, question_terms, stems, surface_forms

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_COVERAGE = 0.6
MIN_READING_EASE = 20.0
"""Below it even readers of technical documentation struggle."""
REPEATED = 0.85
MIN_SENTENCES = 3


def self_review(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``draft``, ``passages`` (default: the draft's references), optional ``question``.

    Output ``{"verdict": "ok"|"revise", "feedback": [finding], "citations": {"checked", "true", "uncited"},
    "coverage": {"share", "missing"}, "readability": figures}``.
    """
    draft = parse_draft(payload["draft"])
    passages = parse_passages(payload.get("passages") or draft.references)
    texts = {int(passage["n"]): plain(passage["quote"]) for passage in passages}
    citations, feedback = _check_citations(draft, texts)
    coverage, missing = _check_coverage(draft, str(payload.get("question") or draft.question))
    figures = measure([sentence.text for sentence in draft.all_sentences])
    feedback += missing
    feedback += _check_reading(draft, figures.flesch_reading_ease)
    feedback += _check_repetition(draft)
    return {
        "verdict": "revise" if feedback else "ok",
        "feedback": feedback,
        "citations": citations,
        "coverage": coverage,
        "readability": figures.to_record(),
    }


def supported(sentence: Sentence, texts: Mapping[int, str]) -> bool:
    """Whether a cited passage holds the sentence, word for word; a cut, marked with an ellipsis, is fine."""
    wanted = plain(sentence.text).rstrip("…").rstrip(" .").casefold()
    return any(wanted in texts.get(number, "").casefold() for number in sentence.citations)


def _check_citations(draft: Draft, texts: Mapping[int, str]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    feedback: list[dict[str, Any]] = []
    true = uncited = 0
    for sentence in draft.all_sentences:
        if not sentence.citations:
            uncited += 1
            feedback.append(_about(sentence, "uncited", "has no citation"))
        elif supported(sentence, texts):
            true += 1
        else:
            numbers = ", ".join(str(number) for number in sentence.citations)
            feedback.append(
                _about(sentence, "citation_mismatch", f"is not in the passage it cites ({numbers})")
            )
    return {"checked": len(draft.all_sentences), "true": true, "uncited": uncited}, feedback


def _check_coverage(draft: Draft, question: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    terms = question_terms(question)
    present = set(stems(draft.text.partition("\n")[2]))  # the title repeats the question
    forms = surface_forms([question])
    missing = [forms.get(term, term) for term in terms if term not in present]
    share = 1 - len(missing) / len(terms) if terms else 1.0
    feedback = []
    if share < MIN_COVERAGE:
        feedback = [
            {"code": "missing_term", "message": f"The question's term '{term}' does not occur.", "term": term}
            for term in missing
        ]
    return {"share": round(share, 2), "missing": missing}, feedback


def _check_reading(draft: Draft, ease: float) -> list[dict[str, Any]]:
    feedback = [
        _about(sentence, "long_sentence", f"has {len(sentence.text.split())} words")
        for sentence in draft.all_sentences
        if len(sentence.text.split()) > REVIEWED_SENTENCE_WORDS
    ]
    if ease < MIN_READING_EASE:
        feedback.append(
            {
                "code": "hard_to_read",
                "message": f"Flesch reading ease is {ease}; {MIN_READING_EASE} is the least.",
            }
        )
    if len(draft.all_sentences) < MIN_SENTENCES:
        feedback.append(
            {"code": "too_short", "message": f"The draft has fewer than {MIN_SENTENCES} sentences."}
        )
    return feedback


def _check_repetition(draft: Draft) -> list[dict[str, Any]]:
    body = draft.body
    likeness = cosine_matrix([sentence.text for sentence in body])
    return [
        _about(body[second], "repetition", "says again what the draft has said")
        for second in range(len(body))
        if any(likeness[first][second] >= REPEATED for first in range(second))
    ]


def _about(sentence: Sentence, code: str, what: str) -> dict[str, Any]:
    return {"code": code, "message": f"This sentence {what}: “{sentence.text}”", "sentence": sentence.text}

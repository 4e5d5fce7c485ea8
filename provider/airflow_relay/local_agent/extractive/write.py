"""Job ``write``: a draft made of sentences from passages, each cited; with feedback, a changed draft."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rank_bm25 import BM25Plus

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.draft import Draft, Section, Sentence, parse_draft, parse_passages
from airflow_relay.local_agent.extractive.feedback import Constraints, parse_feedback
from airflow_relay.local_agent.extractive.readability import measure
from airflow_relay.local_agent.extractive.research import bm25
from airflow_relay.local_agent.extractive.similarity import cosine_matrix
from airflow_relay.local_agent.extractive.text import plain, question_terms, sentences, stems

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODE = re.compile(r"::|>>>|[{}<>=|\\]|\$\{?[A-Z]|^\W|https?://|\(\)\s*$")
_DANGLING = re.compile(
    r"^(?:this|these|those|that|it|they|he|she|but|and|or|however|therefore|also|thus|so|then|otherwise|instead|"
    r"moreover|furthermore|similarly|for example|in this case|as such|note|see|see also|example|default)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[;:]\s|\s[-\u2013\u2014]\s|,\s(?=(?:which|because|so|but|where|whereas|while|since|unless|and)\b)"
)

MIN_WORDS = 6
LEAST_SENTENCES = 6
RELEVANCE_FLOOR = 0.25
"""Beyond the least number, sentences below this share of the best one's relevance are left out."""
MAX_CANDIDATE_WORDS = 60
"""Longer ones are tables or lists that ran together."""


@dataclass(frozen=True)
class Candidate:
    text: str
    passage: int
    """Number of the passage it is quoted from."""
    order: int
    """Position among all candidates: passage by passage, top to bottom."""
    source: str
    heading: str


def write(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``question``, ``passages``, optional ``title``, ``feedback`` (findings, or texts) and ``draft``
    (the one that the feedback is about). Output: a draft, with ``"feedback_applied": [code]``.

    :raises InvalidInputError: the passages hold no sentence that can be quoted.
    """
    question = str(payload["question"])
    passages = parse_passages(payload["passages"])
    constraints = parse_feedback(payload.get("feedback"))
    kept = _sentences_of(payload.get("draft"))
    candidates = _candidates(passages, constraints)
    if not candidates:
        raise InvalidInputError("'passages' hold no whole sentence that could be quoted")
    chosen = _choose(candidates, question, constraints, kept)
    draft = _compose(question, str(payload.get("title") or ""), passages, chosen, constraints)
    return {**draft.to_record(), "feedback_applied": constraints.codes}


def _sentences_of(draft: Any) -> frozenset[str]:
    return frozenset(sentence.text for sentence in parse_draft(draft).all_sentences) if draft else frozenset()


def _candidates(passages: list[dict[str, Any]], constraints: Constraints) -> list[Candidate]:
    found: list[Candidate] = []
    seen: set[str] = set()
    for passage in passages:
        for sentence in sentences(passage["quote"]):
            text = _quotable(sentence, constraints)
            if text and text.lower() not in seen:
                seen.add(text.lower())
                found.append(
                    Candidate(
                        text=text,
                        passage=int(passage["n"]),
                        order=len(found),
                        source=str(passage.get("source_id", passage["n"])),
                        heading=plain(str(passage.get("title") or "")) or f"Passage {passage['n']}",
                    )
                )
    return found


def _quotable(sentence: str, constraints: Constraints) -> str | None:
    """The sentence if it can stand alone: whole, no code, not flagged; shortened where that was asked."""
    if sentence in constraints.drop or sentence[-1] not in ".!?" or _CODE.search(sentence):
        return None
    if not (sentence[0].isupper() or sentence[0].isdigit()) or _DANGLING.match(sentence):
        return None
    count = len(sentence.split())
    if count > constraints.max_words and count <= MAX_CANDIDATE_WORDS:
        shorter = _shortened(sentence, constraints.max_words)
        sentence, count = (shorter, len(shorter.split())) if shorter else ("", 0)
    fits = MIN_WORDS <= count <= constraints.max_words
    return (
        sentence if fits and sentence not in constraints.drop and not constraints.refuses(sentence) else None
    )


def _shortened(sentence: str, limit: int) -> str | None:
    """The sentence up to its last clause end within the limit; the cut is marked, as in any quotation."""
    best = None
    for match in _CLAUSE_END.finditer(sentence):
        head = sentence[: match.start()].rstrip(" ,;:")
        if MIN_WORDS <= len(head.split()) <= limit:
            best = head
    return f"{best} …" if best else None


def _choose(
    candidates: list[Candidate], question: str, constraints: Constraints, kept: frozenset[str]
) -> list[Candidate]:
    """Greedy choice by relevance minus likeness to what is chosen (maximal marginal relevance)."""
    relevance, worth = _worth(candidates, question, constraints, kept)
    likeness = cosine_matrix([candidate.text for candidate in candidates])
    chosen: list[int] = []
    per_source: dict[str, int] = {}
    penalty = [0.0] * len(candidates)
    while len(chosen) < constraints.sentence_count:
        left = [
            index
            for index in range(len(candidates))
            if index not in chosen
            and (relevance[index] >= RELEVANCE_FLOOR or len(chosen) < LEAST_SENTENCES)
            and penalty[index] < constraints.too_similar
            and per_source.get(candidates[index].source, 0) < constraints.max_per_source
        ]
        if not left:
            break
        best = max(left, key=lambda index: (worth[index] - 0.5 * penalty[index], -index))
        chosen.append(best)
        source = candidates[best].source
        per_source[source] = per_source.get(source, 0) + 1
        penalty = [max(old, float(new)) for old, new in zip(penalty, likeness[best], strict=True)]
    return [candidates[index] for index in chosen]


def _worth(
    candidates: list[Candidate], question: str, constraints: Constraints, kept: frozenset[str]
) -> tuple[list[float], list[float]]:
    """Relevance to the question or to terms that feedback asked for, 0 to 1; and the whole worth, with the
    place of the passage and easy words.
    """
    bags = [stems(candidate.text) or ["-"] for candidate in candidates]
    index = BM25Plus(bags)
    relevance = _scaled(bm25(index, question_terms(question)))
    wanted = _scaled(bm25(index, [stem for term in constraints.terms for stem in stems(term)]))
    last = max(candidate.passage for candidate in candidates)
    worth = []
    for position, candidate in enumerate(candidates):
        ease = min(1.0, max(0.0, measure([candidate.text]).flesch_reading_ease / 100))
        worth.append(
            relevance[position]
            + 1.2 * wanted[position]
            + 0.3 * (1 - (candidate.passage - 1) / max(1, last))
            + constraints.ease_weight * ease
            + (0.1 if candidate.text in kept else 0.0)
        )
    return [max(pair) for pair in zip(relevance, wanted, strict=True)], worth


def _scaled(scores: Sequence[float]) -> list[float]:
    top = max(scores, default=0.0)
    return [score / top if top > 0 else 0.0 for score in scores]


def _compose(
    question: str,
    title: str,
    passages: list[dict[str, Any]],
    chosen: list[Candidate],
    constraints: Constraints,
) -> Draft:
    """Summary from the best sentences, then one section per source, best source first."""
    in_summary = 2 if len(chosen) > 5 else 1
    summary = sorted(chosen[:in_summary], key=lambda candidate: candidate.order)
    rest = chosen[in_summary:] or chosen
    groups: dict[str, list[Candidate]] = {}
    for candidate in rest:
        groups.setdefault(candidate.heading, []).append(candidate)
    sections = _merged(groups)
    cited = {candidate.passage for candidate in [*summary, *rest]}
    return Draft(
        title=_title(title or question, constraints.max_title),
        question=question,
        summary=tuple(_sentence(candidate) for candidate in summary),
        sections=tuple(
            Section(heading, tuple(_sentence(item) for item in sorted(items, key=lambda one: one.order)))
            for heading, items in sections
        ),
        references=[
            {key: value for key, value in passage.items() if key != "score"}
            for passage in passages
            if passage["n"] in cited
        ],
    )


def _merged(groups: dict[str, list[Candidate]]) -> list[tuple[str, list[Candidate]]]:
    """Sections in order of their best sentence; single sentences share a last one."""
    full = [(heading, items) for heading, items in groups.items() if len(items) > 1]
    single = [items[0] for items in groups.values() if len(items) == 1]
    if len(single) == 1:
        full.append((single[0].heading, single))
    elif single:
        full.append(("Further details" if full else "What the sources say", single))
    return full


def _title(text: str, limit: int) -> str:
    text = plain(text).strip()
    if len(text) <= limit:
        return text
    cut = text[: limit - 1].rsplit(" ", 1)[0].rstrip(" ,;:-")
    return f"{cut}…"


def _sentence(candidate: Candidate) -> Sentence:
    return Sentence(candidate.text, (candidate.passage,))

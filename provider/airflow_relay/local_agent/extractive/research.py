"""Job ``research``: the passages that answer a question best, by BM25."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rank_bm25 import BM25Plus

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.passages import Passage, cut
from airflow_relay.local_agent.extractive.text import (
    plain,
    question_terms,
    sentences,
    stems,
    surface_forms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_LIMIT = 14
MAX_PER_SOURCE = 4
TOO_SIMILAR = 0.7
"""Share of common stems (Jaccard) from which a passage says nothing new."""
KEY_TERMS = 10
BRIEF_WEIGHT = 0.35
"""A brief's words steer the ranking, the question decides it."""


def research(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``question``, ``sources``, optional ``brief`` and ``limit`` (passages, default 14).

    Output ``{"question", "passages": [passage], "key_terms": [word], "coverage": share of the question's
    terms that the passages hold, "sources_searched", "passages_searched"}``.

    :raises InvalidInputError: no sources, or a source without text.
    """
    question = str(payload["question"])
    passages = _cut_all(payload["sources"])
    bags = [stems(f"{passage.title} {plain(passage.quote)}") for passage in passages]
    terms = question_terms(question)
    index = BM25Plus([bag or ["-"] for bag in bags])
    ranking = _ranking(index, terms, question_terms(str(payload.get("brief") or "")), passages)
    chosen = _choose(ranking, passages, bags, int(payload.get("limit") or DEFAULT_LIMIT))
    found = {stem for position in chosen for stem in bags[position]}
    return {
        "question": question,
        "passages": [
            {"n": n, **passages[position].to_record(), "score": round(float(ranking[position]), 3)}
            for n, position in enumerate(chosen, start=1)
        ],
        "key_terms": _key_terms(index, [bags[position] for position in chosen], passages, chosen),
        "coverage": round(sum(term in found for term in terms) / len(terms), 2) if terms else 0.0,
        "sources_searched": len(payload["sources"]),
        "passages_searched": len(passages),
    }


def _cut_all(sources: Any) -> list[Passage]:
    if not isinstance(sources, list) or not sources:
        raise InvalidInputError("'sources' must be a list with at least one source")
    passages = [
        piece for position, source in enumerate(sources, start=1) for piece in cut(source, position=position)
    ]
    if not passages:
        raise InvalidInputError("no source has any text")
    return passages


def _ranking(index: BM25Plus, terms: list[str], brief: list[str], passages: Sequence[Passage]) -> list[float]:
    """BM25 of question and brief, scaled down where a passage has few sentences to quote."""
    main = bm25(index, terms)
    side = bm25(index, [term for term in brief if term not in terms])
    return [
        (score + BRIEF_WEIGHT * extra) * _prose_share(passage)
        for score, extra, passage in zip(main, side, passages, strict=True)
    ]


def bm25(index: BM25Plus, terms: list[str]) -> list[float]:
    """BM25 scores with weights that stay positive in small collections, and 0 for a text without any term
    (BM25+ gives every text a floor, which is taken off again).
    """
    floor = index.delta * sum(index.idf.get(term) or 0.0 for term in terms)
    return [max(0.0, float(score) - floor) for score in index.get_scores(terms)]


def _prose_share(passage: Passage) -> float:
    """1 for prose with whole sentences, less for tables, code and lists of names."""
    text = plain(passage.quote)
    if not text:
        return 0.0
    in_sentences = sum(
        len(part) for part in sentences(passage.quote) if part[-1] in ".!?" and part.count(" ") > 4
    )
    return 0.4 + 0.6 * min(1.0, in_sentences / len(text))


def _choose(ranking: list[float], passages: list[Passage], bags: list[list[str]], limit: int) -> list[int]:
    """Best first, few from one source, nothing that repeats what is chosen."""
    chosen: list[int] = []
    per_source: dict[str, int] = {}
    for position in sorted(range(len(ranking)), key=lambda index: (-ranking[index], index)):
        if len(chosen) == limit or ranking[position] <= 0:
            break
        source = passages[position].source_id
        if per_source.get(source, 0) >= MAX_PER_SOURCE:
            continue
        if any(_jaccard(bags[position], bags[other]) >= TOO_SIMILAR for other in chosen):
            continue
        chosen.append(position)
        per_source[source] = per_source.get(source, 0) + 1
    return chosen


def _jaccard(left: list[str], right: list[str]) -> float:
    first, second = set(left), set(right)
    return len(first & second) / len(first | second) if first and second else 0.0


def _key_terms(
    index: BM25Plus, bags: list[list[str]], passages: list[Passage], chosen: list[int]
) -> list[str]:
    """Words that are frequent in the chosen passages and rare elsewhere."""
    forms = surface_forms(plain(passages[position].quote) for position in chosen)
    weights: dict[str, float] = {}
    for bag in bags:
        for term in set(bag):
            if term in forms:
                weights[term] = weights.get(term, 0.0) + max(0.0, index.idf.get(term, 0.0))
    best = sorted(weights, key=lambda term: (-weights[term], term))[:KEY_TERMS]
    return [forms[term] for term in best]

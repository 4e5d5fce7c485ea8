"""Choose the passages of the installed documentation that may answer a question.

This is a preselection: the research job ranks and quotes. So it prefers too much to too little, within a
bound that keeps the job's request small.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .citations import CitationCheck, verify_citation
from .docstrings import docstring_passages
from .passages import Passage, PassageKind
from .reference import metric_passages, setting_passages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CitationCheck", "Source", "find_sources", "verify_citation"]

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_STOP_WORDS = frozenset(
    (  # noqa: SIM905 - a list of words reads best as words
        "a about after airflow an and any are as at be been but by can do does for from has have how if in "
        "into is it its may more no not of on one or set should so than that the then there this to until up "
        "was what when where which while who why will with would you your"
    ).split()
)
# The reference says what a setting does; a docstring often says how the code does it.
_WEIGHTS = {PassageKind.SETTING: 1.25, PassageKind.METRIC: 0.9, PassageKind.DOCSTRING: 1.0}
_PUBLIC = ("apache-airflow-task-sdk/airflow/sdk/bases", "apache-airflow-task-sdk/airflow/sdk/definitions")
_INTERNAL_WEIGHT = 0.6
_NAMED_BONUS = 1.0  # as much as the best relevance: what the brief names is in, whatever else is found
_PER_DOCUMENT_ENTRY = 3
_ENOUGH = 6  # with so many sources, only what the brief names is worth more
_LEAST_SCORE = 0.5  # of the best relevance, which is 1


@dataclass(frozen=True)
class Source:
    """A passage as the research job gets it."""

    id: str
    title: str
    path: str
    line: int
    """The file's line that ``text`` starts on; the text's line breaks are the file's."""
    text: str

    def as_payload(self) -> dict[str, Any]:
        """JSON values for the job's request."""
        return {"id": self.id, "title": self.title, "path": self.path, "line": self.line, "text": self.text}


def find_sources(
    question: str, terms: Sequence[str] = (), *, limit: int = 12, max_characters: int = 12_000
) -> list[Source]:
    """The passages that are nearest to a question, best first.

    :param question: the reader's question.
    :param terms: words and names to look for; a passage about exactly such a name goes up.
    :param limit: at most so many passages.
    :param max_characters: the bound on the sum of their texts' lengths.
    """
    passages = _candidates(question, terms)
    ranked = sorted(
        zip(_scores(passages, question, terms), passages, strict=True),
        key=lambda pair: (-pair[0], pair[1].id),
    )
    chosen: list[Source] = []
    room = max_characters
    taken: dict[tuple[str, str], int] = {}
    for score, passage in ranked:
        entry = (passage.path, passage.title.split("(")[0])
        least = _NAMED_BONUS if len(chosen) >= _ENOUGH else _LEAST_SCORE
        if score < least or len(chosen) == limit:
            break
        if len(passage.text) > room or taken.get(entry, 0) >= _PER_DOCUMENT_ENTRY:
            continue
        taken[entry] = taken.get(entry, 0) + 1
        room -= len(passage.text)
        chosen.append(Source(passage.id, passage.title, passage.path, passage.line, passage.text))
    return chosen


def _candidates(question: str, terms: Sequence[str]) -> list[Passage]:
    """Settings, metrics and the docstrings of modules that use one of the terms; the same text only once."""
    found: dict[str, Passage] = {}
    for passages in (
        setting_passages(),
        metric_passages(),
        docstring_passages(list(terms) or _words(question)),
    ):
        for passage in passages:
            found.setdefault(passage.title + "\n" + passage.text, passage)
    return list(found.values())


def _scores(passages: Sequence[Passage], question: str, terms: Sequence[str]) -> Iterable[float]:
    from rank_bm25 import BM25Plus  # noqa: PLC0415 - brings numpy, which the other stages do not need

    # The title counts twice: it names what the passage is about.
    index = BM25Plus([_words(f"{p.title} {p.title} {p.text}") for p in passages])
    # Each word once, however many terms share it: five names with "max" must not make it the topic.
    scores = index.get_scores(
        list(dict.fromkeys(_words(question) + [w for term in terms for w in _words(term)]))
    )
    # BM25Plus gives every document a floor per query word; only what lies above it tells passages apart.
    floor, best = float(min(scores)), float(max(scores))
    named = [words for term in terms if (words := _words(term))]
    for passage, score in zip(passages, scores, strict=True):
        relevance = (float(score) - floor) / (best - floor) if best > floor else 0.0
        yield relevance * _weight(passage) + (_NAMED_BONUS if _is_named(passage.title, named) else 0.0)


def _is_named(title: str, terms: Sequence[Sequence[str]]) -> bool:
    """Whether a term is the name that stands in the title: all of it, or a part of several words."""
    whole, name = " ".join(_words(title)), " ".join(_words(title.partition("] ")[2]))
    return any(
        " ".join(term) in {whole, name} or (len(term) > 1 and " ".join(term) in whole) for term in terms
    )


def _weight(passage: Passage) -> float:
    weight = _WEIGHTS[passage.kind]
    if passage.kind is PassageKind.DOCSTRING and not _is_public(passage.path):
        return weight * _INTERNAL_WEIGHT
    return weight


def _is_public(path: str) -> bool:
    return path.startswith(_PUBLIC) or path.startswith("apache-airflow-providers-")


def _words(text: str) -> list[str]:
    """Lower-case words, names cut at underscores and dots, plurals without their s."""
    words = (word.lower() for word in _WORD.findall(text.replace("_", " ")))
    return [
        w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w
        for w in words
        if w not in _STOP_WORDS
    ]

"""Shipped articles: one Markdown file for readers and one record for the newsroom, side by side.

::

    <publication>/<stem>.md     the article
    <publication>/<stem>.json   its record: draft, scores, rounds
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from include.content.files import locked, write_atomically
from include.content.names import file_stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    Json = Mapping[str, Any]


@dataclass(frozen=True)
class Article:
    """What is shipped."""

    publication: str
    key: str
    draft: Json
    """As the ship job has made it ready, with its references."""
    description: str
    scores: Json
    average: float
    rounds: int
    shipped_at: datetime

    def record(self) -> dict[str, Any]:
        """JSON values; `read_records` gives them back."""
        return {
            "publication": self.publication,
            "key": self.key,
            "draft": dict(self.draft),
            "description": self.description,
            "scores": dict(self.scores),
            "average": self.average,
            "rounds": self.rounds,
            "shipped_at": self.shipped_at.isoformat(),
        }


def ship(article: Article, output: Path) -> Path:
    """Write the article and its record; shipping the same article again replaces it. Returns the article."""
    stem = f"{article.publication}/{file_stem(article.key)}"
    with locked(output):
        write_atomically(
            output, f"{stem}.json", json.dumps(article.record(), indent=1, ensure_ascii=False) + "\n"
        )
        return write_atomically(output, f"{stem}.md", as_markdown(article))


def read_records(output: Path) -> Iterator[dict[str, Any]]:
    """The records of all shipped articles, by publication and name."""
    for file in sorted(output.glob("news_*/*.json")):
        yield json.loads(file.read_text(encoding="utf-8"))


def as_markdown(article: Article) -> str:
    """The article for readers; each sentence with its citations, the sources below."""
    draft = article.draft
    parts = [f"# {draft['title']}", _paragraph(draft["summary"])]
    for section in draft["sections"]:
        parts += [f"## {section['heading']}", _paragraph(section["sentences"])]
    parts += ["## Sources", "\n".join(_source(reference) for reference in draft["references"])]
    scores = ", ".join(f"{name.replace('_', ' ')} {score:g}" for name, score in article.scores.items())
    rounds = "one round" if article.rounds == 1 else f"{article.rounds} rounds"
    parts.append(f"*Critics, after {rounds}: {scores}; average {article.average:.2f}.*")
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraph(sentences: Any) -> str:
    return " ".join(
        f"{sentence['text']} {''.join(f'[{n}]' for n in sentence['citations'])}".strip()
        for sentence in sentences
    )


def _source(reference: Json) -> str:
    lines = f"{reference['line']}-{reference.get('end_line', reference['line'])}"
    return f"{reference['n']}. {reference.get('title', '')}, `{reference.get('path', '')}`, lines {lines}"

"""A draft as values: read from a job's input, written to its output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.text import plain, sentences, words

_MARKER = re.compile(r"\s*\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_HEADING = re.compile(r"^(#{1,6})\s+(.*)$")


@dataclass(frozen=True)
class Sentence:
    text: str
    citations: tuple[int, ...] = ()
    """Numbers of passages, from 1."""

    def to_record(self) -> dict[str, Any]:
        return {"text": self.text, "citations": list(self.citations)}


@dataclass(frozen=True)
class Section:
    heading: str
    sentences: tuple[Sentence, ...]

    def to_record(self) -> dict[str, Any]:
        return {"heading": self.heading, "sentences": [sentence.to_record() for sentence in self.sentences]}


@dataclass(frozen=True)
class Draft:
    title: str
    question: str = ""
    summary: tuple[Sentence, ...] = ()
    sections: tuple[Section, ...] = ()
    references: list[dict[str, Any]] = field(default_factory=list)

    @property
    def body(self) -> list[Sentence]:
        """Every sentence of the sections, in order."""
        return [sentence for section in self.sections for sentence in section.sentences]

    @property
    def all_sentences(self) -> list[Sentence]:
        """Summary and body."""
        return [*self.summary, *self.body]

    @property
    def text(self) -> str:
        """All that a reader reads, without citation marks."""
        parts = [self.title, *(sentence.text for sentence in self.summary)]
        for section in self.sections:
            parts += [section.heading, *(sentence.text for sentence in section.sentences)]
        return "\n".join(parts)

    @property
    def word_count(self) -> int:
        return len(words(" ".join(sentence.text for sentence in self.all_sentences)))

    def to_record(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "question": self.question,
            "summary": [sentence.to_record() for sentence in self.summary],
            "sections": [section.to_record() for section in self.sections],
            "references": self.references,
            "word_count": self.word_count,
        }


def parse_draft(value: Any) -> Draft:
    """A draft from its record, or from text with Markdown headings and ``[n]`` citations.

    :raises InvalidInputError: neither of the two, or no sentence in it.
    """
    draft = _from_text(value) if isinstance(value, str) else _from_record(value)
    if not draft.all_sentences:
        raise InvalidInputError("'draft' has no sentences")
    return draft


def parse_passages(value: Any) -> list[dict[str, Any]]:
    """Passages as ``research`` gives them; ``n`` is filled in by position where absent.

    :raises InvalidInputError: not a list of objects with a ``quote``.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInputError("'passages' must be a list")
    found = []
    for position, item in enumerate(value, start=1):
        if not isinstance(item, dict) or not isinstance(item.get("quote"), str):
            raise InvalidInputError(f"passage {position} has no text in 'quote'")
        found.append({"n": position, **item})
    return found


def _from_record(value: Any) -> Draft:
    if not isinstance(value, dict):
        raise InvalidInputError("'draft' must be an object, as the job 'write' returns it, or a text")
    try:
        return Draft(
            title=str(value.get("title") or ""),
            question=str(value.get("question") or ""),
            summary=tuple(_sentences(value.get("summary"))),
            sections=tuple(
                Section(str(section.get("heading") or ""), tuple(_sentences(section.get("sentences"))))
                for section in value.get("sections") or []
            ),
            references=list(value.get("references") or []),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"'draft' does not have the shape that the job 'write' returns: {error}"
        ) from error


def _sentences(value: Any) -> list[Sentence]:
    if isinstance(value, str):
        return _cited_sentences(value)
    found = []
    for item in value or []:
        if isinstance(item, str):
            found += _cited_sentences(item)
        else:
            found.append(Sentence(str(item["text"]), tuple(int(n) for n in item.get("citations") or ())))
    return found


def _from_text(text: str) -> Draft:
    title, heading, lines = "", "", []
    parts: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _HEADING.match(line)
        if not match:
            lines.append(line)
            continue
        parts.append((heading, "\n".join(lines)))
        lines = []
        if len(match[1]) == 1 and not title:
            title, heading = match[2].strip(), ""
        else:
            heading = match[2].strip()
    parts.append((heading, "\n".join(lines)))
    summary: tuple[Sentence, ...] = ()
    sections = []
    for name, body in parts:
        found = tuple(_cited_sentences(body))
        if name:
            sections.append(Section(name, found))
        else:
            summary += found
    if not sections:
        return Draft(title=title, sections=(Section("", summary),))
    return Draft(title=title, summary=summary, sections=tuple(sections))


def _cited_sentences(text: str) -> list[Sentence]:
    """Sentences with the ``[n]`` marks in or right behind them."""
    attached = re.sub(r"([.!?])((?:\s*\[\d[\d,\s]*\])+)", r"\2\1", text)
    found = []
    for sentence in sentences(attached):
        numbers = [int(n) for match in _MARKER.finditer(sentence) for n in match[1].split(",")]
        found.append(Sentence(plain(_MARKER.sub("", sentence)), tuple(dict.fromkeys(numbers))))
    return found

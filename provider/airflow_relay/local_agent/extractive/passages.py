"""Sources cut into passages that know their lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.backends import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET_WORDS = 110
"""Paragraphs are joined up to about this length."""
MAX_LINES = 40


@dataclass(frozen=True)
class Passage:
    source_id: str
    title: str
    path: str
    line: int
    """Number of the first line, as the source counts."""
    end_line: int
    quote: str
    """An exact piece of the source's text: whole lines."""

    def to_record(self) -> dict[str, Any]:
        return {
            "source_id": self.source_id,
            "title": self.title,
            "path": self.path,
            "line": self.line,
            "end_line": self.end_line,
            "quote": self.quote,
        }


def cut(source: dict[str, Any], *, position: int) -> list[Passage]:
    """The passages of one source.

    :raises InvalidInputError: no text, or a line that is no number.
    """
    text = source.get("text") if isinstance(source, dict) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"source {position} has no 'text'")
    first = source.get("line", 1)
    if isinstance(first, bool) or not isinstance(first, int):
        raise InvalidInputError(f"'line' of source {position} must be a whole number")
    lines = text.split("\n")
    return [
        Passage(
            source_id=str(source.get("id", position)),
            title=str(source.get("title") or source.get("id") or f"Source {position}"),
            path=str(source.get("path") or ""),
            line=first + start,
            end_line=first + end - 1,
            quote="\n".join(lines[start:end]),
        )
        for start, end in _joined(lines)
    ]


def _joined(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Neighbouring paragraphs as half-open line ranges, joined up to the target length."""
    begin: int | None = None
    finish = count = 0
    for start, end in _paragraphs(lines):
        size = sum(len(line.split()) for line in lines[start:end])
        if begin is not None and (count + size > TARGET_WORDS or end - begin > MAX_LINES):
            yield begin, finish
            begin, count = None, 0
        begin = start if begin is None else begin
        finish, count = end, count + size
    if begin is not None:
        yield begin, finish


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank, cut where one grows too long."""
    start: int | None = None
    for number, line in enumerate(lines):
        full = start is not None and number - start >= MAX_LINES
        if start is not None and (not line.strip() or full):
            yield start, number
            start = None
        if line.strip() and start is None:
            start = number
    if start is not None:
        yield start, len(lines)

"""Citations: a file of an installed Airflow package, a range of lines, and the words that stand there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .packages import UnknownDocumentError, locate

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class CitationCheck:
    """Whether a citation holds; false in a condition when it does not."""

    ok: bool
    reason: str
    """Empty when the citation holds, otherwise what is wrong, for people."""

    def __bool__(self) -> bool:
        return self.ok


def normalised(text: str) -> str:
    """The text with every run of white space as one blank, so that line breaks do not matter."""
    return " ".join(text.split())


def verify_citation(path: str, line_start: int, line_end: int, quote: str) -> CitationCheck:
    """Read the cited file again and look for the quote in its lines ``line_start`` to ``line_end``.

    Lines count from 1 and both ends belong to the range. White space is normalised on both sides; nothing
    else is. Never raises for a bad citation: the reason is in the answer.
    """
    if not normalised(quote):
        return CitationCheck(ok=False, reason=f"{path}: the quote is empty")
    try:
        lines = _lines(locate(path))
    except UnknownDocumentError as error:
        return CitationCheck(ok=False, reason=str(error))
    if not 1 <= line_start <= line_end <= len(lines):
        return CitationCheck(
            ok=False, reason=f"{path}: no lines {line_start} to {line_end}, the file has {len(lines)} lines"
        )
    if normalised(quote) not in normalised(" ".join(lines[line_start - 1 : line_end])):
        return CitationCheck(
            ok=False, reason=f"{path}:{line_start}-{line_end} does not say {normalised(quote)[:80]!r}"
        )
    return CitationCheck(ok=True, reason="")


@lru_cache(maxsize=32)
def _lines(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").splitlines())

"""Passages: pieces of the installed documentation, with the lines that they stand on.

The text of a passage keeps the file's own line breaks: line *n* of the text, from 0, is line
``passage.line + n`` of the file. So whoever quotes it can name the exact lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

MAX_CHARACTERS = 1200
_DIRECTIVES = (".. code-block::", ".. code::", ".. list-table::", ".. seealso::", "::", ".. literalinclude::")


class PassageKind(str, Enum):
    """What kind of documentation a passage comes from."""

    SETTING = "setting"  # an option of the configuration reference
    METRIC = "metric"  # an entry of the metrics registry
    DOCSTRING = "docstring"  # a docstring of a module, class or function


@dataclass(frozen=True)
class Passage:
    """One piece of documentation, at most `MAX_CHARACTERS` long unless a single paragraph is longer."""

    kind: PassageKind
    title: str
    """What it documents, for example ``[scheduler] task_queued_timeout`` or ``BaseOperator.retries``."""
    path: str
    """The cited path, see `content.packages`."""
    line: int
    """The file's line that the text starts on, from 1."""
    text: str

    @property
    def id(self) -> str:
        """Names the passage within one version of the packages."""
        return f"{self.path}:{self.line}"


def paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Runs of lines that are not blank, each with the index of its first line; code examples are left out."""
    start = 0
    block: list[str] = []
    for index, line in enumerate([*_without_code(lines), ""]):
        if line.strip():
            if not block:
                start = index
            block.append(line)
        elif block:
            yield start, block
            block = []


def pieces(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines cut between paragraphs into texts of at most `MAX_CHARACTERS`, each with its line's index."""
    start = 0
    held: list[str] = []
    for index, block in paragraphs(lines):
        gap = [""] * (index - start - len(held)) if held else []
        if held and len("\n".join([*held, *gap, *block])) > MAX_CHARACTERS:
            yield start, dedented(held)
            held, gap = [], []
        if not held:
            start = index
        held += [*gap, *block]
    if held:
        yield start, dedented(held)


def dedented(lines: Sequence[str]) -> str:
    """The lines as one text; the first line may stand further left, as in a docstring."""
    first, *rest = lines
    return (
        "\n".join([first.strip(), *textwrap.dedent("\n".join(rest)).split("\n")]) if rest else first.strip()
    )


def _without_code(lines: Sequence[str]) -> list[str]:
    """Blank what belongs to a code example or a table: nobody should quote it as a sentence."""
    kept: list[str] = []
    code_indent: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if code_indent is not None and line.strip() and indent <= code_indent:
            code_indent = None
        if code_indent is None and line.strip().startswith(_DIRECTIVES):
            code_indent = indent
            kept.append("")
            continue
        kept.append("" if code_indent is not None else line)
        if code_indent is None and line.rstrip().endswith("::"):
            code_indent = indent
    return kept

"""Turns whatever came back from an agent call into flat evidence: tokens, texts, statuses, headers.

A token is a machine word with the name of the field that it stood in (`code=insufficient_quota`). The readers
(`reader`, `exceptions`) open nesting, JSON in strings, Python reprs, event streams, HTML pages and exception
chains, so that the rules never have to know in which wrapping a word came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_WORD_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NON_WORD = re.compile(r"[^a-z0-9]+")


class Token(NamedTuple):
    """A machine word of a reply."""

    key: str
    """The field in snake case, `text` for an identifier found in prose, `exception` for a class name."""
    word: str
    """The value in snake case: `RateLimitError` and `rate-limit-error` are both `rate_limit_error`."""
    depth: int
    """How deep in the wrapping it stood; the cause is deeper than its relabelling."""
    raw: str


class Number(NamedTuple):
    """A vendor's numeric code that is no HTTP status."""

    key: str
    value: int
    parent: str


def snake(word: str) -> str:
    """`APIConnectionError`, `api-connection-error` and `Api.ConnectionError` as `api_connection_error`."""
    return _NON_WORD.sub("_", _WORD_EDGE.sub("_", word).lower()).strip("_")


@dataclass
class Evidence:
    """Everything that one failed call said, in flat form."""

    headers: dict[str, str] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    statuses: list[tuple[int, int]] = field(default_factory=list)
    """(depth, HTTP status) of each status found inside bodies and texts."""
    numbers: list[Number] = field(default_factory=list)
    hints: list[tuple[str, Any]] = field(default_factory=list)
    """(field, value) of each field whose name speaks of waiting."""
    flags: set[str] = field(default_factory=set)
    """Names of boolean fields that are true, and marks set by the readers (`html`)."""
    nodes: int = 0

    def add_token(self, key: str, raw: str, depth: int) -> None:
        word = snake(raw[:200])
        if word:
            self.tokens.append(Token(key, word, depth, raw[:200]))

    def add_text(self, text: str) -> None:
        if text and not text.isspace() and text not in self.texts:
            self.texts.append(text)

    def prose(self) -> str:
        """All texts as one lower-case string with plain quotes and single blanks, for the phrase rules."""
        joined = " \n ".join(self.texts)[:24_000].lower()
        return " ".join(joined.translate(_PLAIN).split())


_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u00a0": " ",
        "\u2011": "-",
        "\u2013": "-",
    }
)


def gather_headers(found: Evidence, headers: Any) -> None:
    """Adds HTTP headers: a mapping or pairs, values may be bytes or lists; the first of a name stays."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    try:
        pairs = list(pairs)[:200]
    except TypeError:
        return
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            continue
        name, value = (_header_text(part) for part in pair)
        if name:
            found.headers.setdefault(name.lower().strip(), value.strip())


def _header_text(part: Any) -> str:
    if isinstance(part, (list, tuple)):
        part = part[0] if part else ""
    if isinstance(part, (bytes, bytearray)):
        return bytes(part).decode("latin-1")[:1000]
    return "" if part is None else str(part)[:1000]

"""Plain words from documentation text: markup away, sentences, tokens, stems."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import snowballstemmer

if TYPE_CHECKING:
    from collections.abc import Iterable

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_TOKEN = re.compile(r"[^\W_]+(?:[_.\-][^\W_]+)*")
_ROLE = re.compile(r":[a-zA-Z:+\-]+:`([^`<]*?)\s*(?:<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}|\[([^\]]+)\]\([^)\s]*\)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|#\.|\d{1,2}[.)])\s+")
_RULE = re.compile(r"^\s*([=\-~^\"'`#*+_.])\1{2,}\s*$")
_DIRECTIVE = re.compile(r"^\s*(?:\.\.\s|:[\w\- ]+:\s*\S*$|```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z0-9])")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|incl|approx|no|fig|mr|mrs|dr|st)\.$", re.IGNORECASE)

_STOP_WORDS = (
    "a about above after again all also am an and any are as at be because been before being below "
    "between both but by can could did do does doing down during each either else etc few for from "
    "further get had has have having he her here hers him his how however i if in into is it its itself "
    "just may me might more most must my no nor not now of off on once one only or other our ours out "
    "over own per same she should since so some such than that the their them then there these they "
    "this those through to too under until up upon us use used using very via was we were what when "
    "where whether which while who whom why will with within without would you your "
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


def plain(text: str) -> str:
    """The words of a text on one line: reStructuredText and Markdown marks, bullets and line breaks dropped.

    Quotes are compared in this form: the words must be the source's own, in its order.
    """
    return " ".join(blocks(text))


def blocks(text: str) -> list[str]:
    """Paragraphs and list items of a text, each on one line and without markup."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or _RULE.match(line) or _DIRECTIVE.match(line):
            found.append([])
            continue
        bullet = _BULLET.match(line)
        if bullet:
            found.append([])
            line = line[bullet.end() :]  # noqa: PLW2901 - the line without its bullet
        found[-1].append(line.strip().lstrip("#").strip())
    joined = (_without_marks(" ".join(lines)) for lines in found if lines)
    return [block for block in joined if block]


def _without_marks(text: str) -> str:
    text = _ROLE.sub(r"\1", text)
    text = _LINK.sub(lambda match: match[1] or match[2], text)
    text = text.replace("``", "").replace("`", "").replace("**", "")
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Sentences of a text, in order; a list item or a heading is never joined to its neighbour."""
    found: list[str] = []
    for block in blocks(text):
        found += _split(block)
    return found


def _split(block: str) -> list[str]:
    parts: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(block):
        if _ABBREVIATION.search(block[start : match.start()]):
            continue
        parts.append(block[start : match.end()].strip())
        start = match.end()
    parts.append(block[start:].strip())
    return [part for part in parts if part]


def words(text: str) -> list[str]:
    """Words in lower case, without numbers."""
    return [match[0].lower() for match in WORD.finditer(text)]


def stems(text: str) -> list[str]:
    """Stems of the words that carry meaning. A compound such as ``max_active_runs`` counts whole and in
    its parts, so that settings are found by name and by topic.
    """
    found: list[str] = []
    for match in _TOKEN.finditer(text.lower()):
        token = match[0]
        parts = [part for part in re.split(r"[_.\-]", token) if part]
        if len(parts) > 1:
            found.append(token)
        found += [stem(part) for part in parts if part not in STOP_WORDS and len(part) > 1]
    return found


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    # One stemmer a call: its objects keep state while they work, and workers are threads.
    return str(snowballstemmer.stemmer("english").stemWord(word))


def question_terms(question: str) -> list[str]:
    """Stems of a question, each once, in order."""
    return list(dict.fromkeys(stems(question)))


def surface_forms(texts: Iterable[str]) -> dict[str, str]:
    """For each stem the word that people see most often."""
    seen: dict[str, dict[str, int]] = {}
    for text in texts:
        for match in _TOKEN.finditer(text.lower()):
            for part in re.split(r"[_.\-]", match[0]):
                if len(part) > 2 and part not in STOP_WORDS and not part.isdigit():
                    forms = seen.setdefault(stem(part), {})
                    forms[part] = forms.get(part, 0) + 1
    return {key: min(forms, key=lambda form: (-forms[form], form)) for key, forms in seen.items()}

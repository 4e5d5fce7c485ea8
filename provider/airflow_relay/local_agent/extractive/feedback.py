"""Feedback from reviews and critics, turned into constraints for the next draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.wording import ABSOLUTE, LOADED, PASSIVE

MAX_SENTENCE_WORDS = 42
REVIEWED_SENTENCE_WORDS = 35
"""The review asks for shorter sentences above this; every draft after feedback keeps to it."""
SHORT_SENTENCE_WORDS = 25

SHORTEN = "long_sentence"
HARD = "hard_to_read"

_WORDS_TO_CODES = (
    (("uncited", "citation", "cite", "unsupported"), "uncited"),
    (("long sentence", "shorter sentence", "shorten", "too long"), SHORTEN),
    (("readab", "hard to read", "simpl", "plain"), HARD),
    (("repet", "redundan", "duplicate"), "repetition"),
    (("more sources", "distinct sources", "few sources", "diverse"), "few_sources"),
    (("passive",), "passive_voice"),
    (("absolute", "overstat", "exaggerat"), "absolute_claim"),
    (("loaded", "biased", "hype"), "loaded_word"),
    (("title",), "title_length"),
    (("too short", "more detail", "expand"), "too_short"),
)
"""A person's words, read for what they ask; the first group that occurs wins."""


@dataclass
class Constraints:
    """What the next draft must keep to. The defaults are those of a first draft."""

    drop: set[str] = field(default_factory=set)
    """Sentences not to be used again."""
    terms: list[str] = field(default_factory=list)
    """Terms to be covered."""
    max_words: int = MAX_SENTENCE_WORDS
    max_title: int = 90
    ease_weight: float = 0.15
    max_per_source: int = 6
    sentence_count: int = 14
    too_similar: float = 0.6
    avoid: list[Any] = field(default_factory=list)
    """Patterns of wording that no sentence may have."""
    codes: list[str] = field(default_factory=list)
    """Codes understood, in order."""

    def refuses(self, sentence: str) -> bool:
        return any(pattern.search(sentence) for pattern in self.avoid)


def parse_feedback(value: Any) -> Constraints:
    """Constraints from a list of findings (``{"code", "message", "sentence"?, "term"?}``) or of texts.

    Every sentence that a finding names is dropped, unless the finding asks to shorten it.

    :raises InvalidInputError: not a list of objects or texts.
    """
    constraints = Constraints()
    if value is None:
        return constraints
    if not isinstance(value, list):
        raise InvalidInputError("'feedback' must be a list of findings")
    for item in value:
        if isinstance(item, str):
            item = {"code": _code_of(item), "message": item}  # noqa: PLW2901 - a text becomes a finding
        if not isinstance(item, dict):
            raise InvalidInputError("each item of 'feedback' must be an object with a 'code', or a text")
        _apply(constraints, item)
    if value:
        constraints.max_words = min(constraints.max_words, REVIEWED_SENTENCE_WORDS)
    return constraints


def _code_of(text: str) -> str:
    lowered = text.lower()
    return next((code for words, code in _WORDS_TO_CODES if any(word in lowered for word in words)), "other")


def _apply(constraints: Constraints, finding: dict[str, Any]) -> None:
    code = str(finding.get("code") or "other")
    if code not in constraints.codes:
        constraints.codes.append(code)
    if finding.get("sentence") and code != SHORTEN:
        constraints.drop.add(str(finding["sentence"]))
    if finding.get("term"):
        constraints.terms.append(str(finding["term"]))
    change = _CHANGES.get(code)
    if change:
        change(constraints)


def _shorten(constraints: Constraints) -> None:
    constraints.max_words = SHORT_SENTENCE_WORDS


def _easier(constraints: Constraints) -> None:
    constraints.max_words = min(constraints.max_words, 30)
    constraints.ease_weight = 1.0


def _less_alike(constraints: Constraints) -> None:
    constraints.too_similar = 0.35


def _spread(constraints: Constraints) -> None:
    constraints.max_per_source = 2


def _longer(constraints: Constraints) -> None:
    constraints.sentence_count = 20


def _shorter_title(constraints: Constraints) -> None:
    constraints.max_title = 65


def _without(pattern: Any) -> Any:
    def change(constraints: Constraints) -> None:
        constraints.avoid.append(pattern)

    return change


_CHANGES = {
    SHORTEN: _shorten,
    HARD: _easier,
    "repetition": _less_alike,
    "few_sources": _spread,
    "too_short": _longer,
    "title_length": _shorter_title,
    "passive_voice": _without(PASSIVE),
    "absolute_claim": _without(ABSOLUTE),
    "loaded_word": _without(LOADED),
}

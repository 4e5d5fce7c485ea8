"""A signal is one clue with a weight; the heaviest decides. The weights are one scale for all rule tables."""

from __future__ import annotations

import re
from typing import NamedTuple

from airflow_relay.core.errors.taxonomy import ErrorClass

DECISIVE = 95
"""A machine word that names one cause and nothing else (`insufficient_quota`, `content_filter`)."""
SPECIFIC = 80
"""Words that are used for one cause only ("insufficient balance", "maximum context length")."""
PLAIN = 60
"""A machine word or words for a whole family (`rate_limit_error`, `ThrottlingException`, "timed out")."""
STATUS = 50
"""An HTTP status that says much by itself (401, 404, 408, 429, 504, 529)."""
VAGUE_STATUS = 40
"""An HTTP status that covers many causes (400, 403, 422, 500, 502, 503)."""
VAGUE = 30
"""A word that every failure gets (`invalid_request_error`, `api_error`, `server_error`)."""
FAINT = 20
"""Better than nothing (a failed state without a word of why)."""


class Signal(NamedTuple):
    """One clue about the class of a failure."""

    error_class: ErrorClass
    weight: int
    depth: int
    """How deep in the wrapping; of two equal clues the deeper one is the cause."""
    why: str
    """What was seen, for the verdict's reason."""


class PhraseRule(NamedTuple):
    """Words that tell a class. `pattern` runs over lower-case prose; `seen` says where the words were met."""

    error_class: ErrorClass
    weight: int
    pattern: re.Pattern[str]
    seen: str


def phrase_rule(error_class: ErrorClass, weight: int, pattern: str, seen: str) -> PhraseRule:
    """A `PhraseRule` from the text of its pattern."""
    return PhraseRule(error_class, weight, re.compile(pattern), seen)


def heaviest(signals: list[Signal]) -> Signal | None:
    """The clue that decides: the greatest weight, then the deepest, then the first found."""
    best: Signal | None = None
    for signal in signals:
        if best is None or (signal.weight, signal.depth) > (best.weight, best.depth):
            best = signal
    return best

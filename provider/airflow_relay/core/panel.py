"""A panel of critics: what a score is, and what the scores of a round decide."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class PanelOutcome(str, Enum):
    """The outcomes of a panel's stage: its route table names both."""

    PASS = "pass"  # noqa: S105 - no password
    REVISE = "revise"


class ScoreError(ValueError):
    """A critic's reply holds no score. It is a failed critic, not a zero."""


class MissingScoresError(ValueError):
    """A round without all its scores decides nothing."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a complete round decides."""

    outcome: PanelOutcome
    average: float
    reason: str
    """In one sentence, for people."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A declared panel.

    Its stage is a router with the outcomes of :class:`PanelOutcome`. The rounds are the pipeline's own bound:
    give the stage that revises ``max_visits=panel.rounds``, and ``after_max_visits`` says who decides then::

        Stage("draft", to="critique", max_visits=PANEL.rounds, after_max_visits=PERSON),
        Stage("critique", to={"pass": "ship", "revise": "draft"}),

    :param critics: their names, each once; one agent job each.
    :param threshold: the average that a round must reach.
    :param rounds: how often the text may come before the panel.
    :param lowest: of the scale, included.
    :param highest: of the scale, included.
    :raises ValueError: the declaration contradicts itself; names the field.
    """

    critics: Sequence[str]
    threshold: float
    rounds: int = 3
    lowest: float = 0
    highest: float = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "critics", tuple(self.critics))
        if not self.critics or len(set(self.critics)) < len(self.critics):
            raise ValueError(f"critics={list(self.critics)}: name at least one critic, and each once.")
        if not self.lowest <= self.threshold <= self.highest:
            raise ValueError(
                f"threshold={self.threshold} must lie on the scale from {self.lowest:g} to {self.highest:g}."
            )
        if self.rounds < 1:
            raise ValueError(f"rounds={self.rounds}: give a whole number of at least 1.")

    def score(self, value: Any) -> float:
        """Read a score strictly.

        :param value: a number, or a text that is a number and nothing else.
        :raises ScoreError: it is none, or off the scale.
        """
        number = _number(value)
        if number is None:
            raise ScoreError(f"{_shown(value)} is no score: expected a number and nothing else.")
        if not self.lowest <= number <= self.highest:
            raise ScoreError(
                f"The score {number:g} is off the scale from {self.lowest:g} to {self.highest:g}."
            )
        return number

    def missing(self, scores: Mapping[str, float]) -> tuple[str, ...]:
        """The critics without a score, in order of declaration."""
        return tuple(name for name in self.critics if name not in scores)

    def judge(self, scores: Mapping[str, float], *, round_number: int) -> Verdict:
        """Decide on a complete round.

        :raises MissingScoresError: a critic has no score.
        """
        missing = self.missing(scores)
        if missing:
            raise MissingScoresError(f"No score of {', '.join(missing)}: a round counts when it is complete.")
        average = sum(scores[name] for name in self.critics) / len(self.critics)
        outcome = PanelOutcome.PASS if average >= self.threshold else PanelOutcome.REVISE
        compared = "reaches" if outcome is PanelOutcome.PASS else "is below"
        which = f"Round {round_number} of {self.rounds}"
        reason = f"{which}: the average of {average:.2f} {compared} {self.threshold:g}"
        return Verdict(outcome=outcome, average=average, reason=reason)


def _number(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"

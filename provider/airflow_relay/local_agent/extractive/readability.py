"""Readability figures of English text.

Flesch reading ease = 206.835 - 1.015 * (words / sentences) - 84.6 * (syllables / words), after R. Flesch,
"A new readability yardstick", 1948; Flesch-Kincaid grade = 0.39 * (words / sentences)
+ 11.8 * (syllables / words) - 15.59, after Kincaid et al., 1975. Syllables are the larger of Pyphen's
hyphenation points + 1 and the number of vowel groups, since hyphenation leaves out breaks that print avoids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyphen

from airflow_relay.local_agent.extractive.text import words

if TYPE_CHECKING:
    from collections.abc import Sequence

_VOWELS = re.compile(r"[aeiouy]+")
_SILENT_END = re.compile(r"(?:[^laeiouy]es|[^aeioulty]ed|[^aeiouyl]e)$")
_HYPHENATION = pyphen.Pyphen(lang="en_US", left=1, right=1)

WORDS_PER_MINUTE = 230


@dataclass(frozen=True)
class Readability:
    words: int
    sentences: int
    words_per_sentence: float
    flesch_reading_ease: float
    """Higher is easier: 60 plain English, 30 hard; technical documentation is often at 30 to 50."""
    flesch_kincaid_grade: float
    """School years needed."""

    def to_record(self) -> dict[str, float]:
        return {
            "words": self.words,
            "sentences": self.sentences,
            "words_per_sentence": self.words_per_sentence,
            "flesch_reading_ease": self.flesch_reading_ease,
            "flesch_kincaid_grade": self.flesch_kincaid_grade,
        }


def measure(sentence_texts: Sequence[str]) -> Readability:
    """Figures over sentences; an empty text scores 0 everywhere."""
    found = [word for text in sentence_texts for word in words(text)]
    if not found:
        return Readability(0, 0, 0.0, 0.0, 0.0)
    length = len(found) / len(sentence_texts)
    syllables = sum(syllable_count(word) for word in found) / len(found)
    return Readability(
        words=len(found),
        sentences=len(sentence_texts),
        words_per_sentence=round(length, 1),
        flesch_reading_ease=round(206.835 - 1.015 * length - 84.6 * syllables, 1),
        flesch_kincaid_grade=round(0.39 * length + 11.8 * syllables - 15.59, 1),
    )


@lru_cache(maxsize=50_000)
def syllable_count(word: str) -> int:
    word = word.lower()
    groups = len(_VOWELS.findall(word))
    if groups > 1 and _SILENT_END.search(word):
        groups -= 1
    return max(1, groups, len(_HYPHENATION.positions(word)) + 1)


def reading_minutes(word_count: int) -> int:
    return max(1, round(word_count / WORDS_PER_MINUTE))

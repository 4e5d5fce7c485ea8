"""Chance without state: the same seed and the same question give the same number, whoever asks and when.

So the models of one scenario meet the same items with the same stage times and the same failures (common
random numbers), and what differs between them is the scheduling alone.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_SCALE: Final = 2.0**-53


class Chance:
    """Uniform numbers in (0, 1), each named by whole numbers: a hash (SplitMix64), not a generator."""

    def __init__(self, seed: int) -> None:
        self._seed = _mix((seed + 1) * _GOLDEN & _MASK)
        self._begun: dict[int, int] = {}
        """What the name begins with → the number mixed so far; a model has some twenty purposes."""

    def at(self, purpose: int, *name: int) -> float:
        """The number with this name, for example ``at(Draw.TIME, item, stage, attempt)``."""
        value = self._begun.get(purpose)
        if value is None:
            value = self._begun[purpose] = _mix((self._seed ^ purpose) + _GOLDEN & _MASK)
        for part in name:  # _mix, written out: this is what a simulation does most
            value = (value ^ part) + _GOLDEN & _MASK
            value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
            value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
            value ^= value >> 31
        return ((value >> 11) + 0.5) * _SCALE


def _mix(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)

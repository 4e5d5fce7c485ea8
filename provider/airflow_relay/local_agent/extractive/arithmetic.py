"""Sums in a text that do not add up."""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_EQUATION = re.compile(
    rf"{_NUMBER}\s*(\+|plus|-|\u2212|\u2013|minus|\*|\u00d7|x|times|/|\u00f7|divided by)\s*{_NUMBER}\s*"
    rf"(?:=|equals|is|makes|gives)\s*{_NUMBER}",
    re.IGNORECASE,
)
_SHARE = re.compile(
    rf"{_NUMBER}\s+(?:out\s+)?of\s+{_NUMBER}\s*(?:\w+\s*)?[(,]\s*(?:or\s+)?{_NUMBER}\s*(?:%|percent)"
)

_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else float("nan"),
}
_SIGNS = {
    "plus": "+",
    "minus": "-",
    "\u2212": "-",
    "\u2013": "-",
    "\u00d7": "*",
    "x": "*",
    "times": "*",
    "\u00f7": "/",
    "divided by": "/",
}


def wrong_sums(text: str) -> list[str]:
    """One line for each statement such as "12 + 30 = 43" or "3 of 4 (80 %)" that is wrong.

    A result may be rounded: it is wrong when it is off by more than one half of its last digit.
    """
    found = []
    for match in _EQUATION.finditer(text):
        sign = match[2].lower()
        right = _OPERATIONS[_SIGNS.get(sign, sign)](_value(match[1]), _value(match[3]))
        if not _rounds_to(right, match[4]):
            found.append(f"{match[0]}: it is {right:g}.")
    for match in _SHARE.finditer(text):
        whole = _value(match[2])
        right = 100 * _value(match[1]) / whole if whole else float("nan")
        if not _rounds_to(right, match[3]):
            found.append(f"{match[0]}: it is {right:.1f} percent.")
    return found


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _rounds_to(exact: float, stated: str) -> bool:
    decimals: int = len(stated.partition(".")[2])
    return abs(exact - _value(stated)) <= 0.5 * float(f"1e-{decimals}") + 1e-9

"""A few words of SVG, enough for the report's charts; everything is inline, nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

STAGE_COLOURS: Final = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#edc948",
    "#76b7b2",
    "#ff9da7",
    "#9c755f",
    "#86bcb6",
    "#d37295",
)
MODEL_COLOURS: Final = (
    "#c2554d",
    "#2f7d6d",
    "#8a6d3b",
    "#6a5acd",
    "#5b7083",
    "#b8860b",
    "#3f6fb5",
    "#8c564b",
)


@dataclass(frozen=True)
class Axis:
    """A linear scale from values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1
        return self.begin + (value - self.low) / span * (self.end - self.begin)

    def ticks(self, about: int = 6) -> list[float]:
        """Round values, about so many."""
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        raw = span / about
        size = 10 ** math.floor(math.log10(raw))
        step = next(s * size for s in (1, 2, 2.5, 5, 10) if s * size >= raw)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def picture(width: float, height: float, parts: Iterable[str], *, label: str) -> str:
    """A whole drawing.

    :param label: what it shows, for those who cannot see it.
    """
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, fill: str, *, tip: str = "", more: str = "") -> str:
    """A box; ``tip`` appears when the mouse rests on it."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" '
        f'fill="{fill}" {more}>{title}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line of a CSS class."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    """A word or a few."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def path(
    points: Sequence[tuple[float, float]], *, stroke: str, fill: str = "none", width: float = 1.8
) -> str:
    """A line through points."""
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{steps}" stroke="{stroke}" fill="{fill}" stroke-width="{width}" class="path"/>'


def area(points: Sequence[tuple[float, float]], base: float, *, fill: str) -> str:
    """The surface between points and a base line."""
    if not points:
        return ""
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    first, last = points[0][0], points[-1][0]
    points_text = f"{first:.1f},{base:.1f} {steps} {last:.1f},{base:.1f}"
    return f'<polygon points="{points_text}" fill="{fill}" opacity="0.25"/>'


def label(value: float) -> str:
    """A tick's text."""
    return f"{value:g}"

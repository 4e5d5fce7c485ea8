"""Job ``art_direction``: a cover in SVG, drawn from the draft alone."""

from __future__ import annotations

import colorsys
import hashlib
import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.extractive.draft import parse_draft
from airflow_relay.local_agent.extractive.keywords import key_terms

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEIGHT = 1200, 630
"""The size that link previews use."""
LINE_CHARACTERS = 26
MAX_LINES = 5
MAX_TITLE = LINE_CHARACTERS * MAX_LINES

_MOTIFS_BY_WORD = {
    "graph": (
        "dag",
        "dags",
        "task",
        "tasks",
        "chain",
        "depend",
        "trigger",
        "triggers",
        "pipeline",
        "stage",
        "graph",
    ),
    "bars": (
        "queue",
        "pool",
        "pools",
        "slot",
        "slots",
        "limit",
        "limits",
        "parallelism",
        "priority",
        "concurrency",
    ),
    "rings": (
        "schedule",
        "scheduler",
        "interval",
        "time",
        "timeout",
        "timetable",
        "cron",
        "retry",
        "retries",
    ),
    "waves": ("metric", "metrics", "log", "logs", "stream", "monitor", "health", "statsd", "trace"),
    "tiles": ("database", "table", "store", "asset", "assets", "xcom", "backend", "variable", "connection"),
}


def art_direction(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``draft``. Output ``{"svg", "alt", "palette": {"background", "shape", "accent", "text"}, "motif",
    "key_terms", "width", "height"}``; the same draft gives the same bytes.
    """
    draft = parse_draft(payload["draft"])
    title = " ".join((draft.title or draft.all_sentences[0].text).split())
    terms = key_terms(draft, limit=6)
    digest = hashlib.sha256(title.encode("utf-8", "replace")).digest()
    palette = _palette(digest)
    motif = _motif(terms, digest)
    shapes = _DRAWINGS[motif](_numbers(terms, digest))
    alt = (
        f"Cover “{title}”: abstract {motif} on a {_colour_name(digest)} ground, about {', '.join(terms[:3])}."
    )
    return {
        "svg": _svg(title, alt, shapes, palette),
        "alt": alt,
        "palette": palette,
        "motif": motif,
        "key_terms": terms,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _palette(digest: bytes) -> dict[str, str]:
    """Dark ground, two related colours, light text: the contrast of text to ground stays above 7 to 1."""
    hue = digest[0] / 255
    return {
        "background": _hex(hue, 0.16, 0.55),
        "shape": _hex(hue, 0.38, 0.50),
        "accent": _hex((hue + 0.42) % 1, 0.62, 0.70),
        "text": "#f7f7f5",
    }


def _hex(hue: float, lightness: float, saturation: float) -> str:
    return "#" + "".join(
        f"{round(part * 255):02x}" for part in colorsys.hls_to_rgb(hue, lightness, saturation)
    )


def _colour_name(digest: bytes) -> str:
    names = ("red", "orange", "olive", "green", "teal", "blue", "indigo", "violet", "plum")
    return f"dark {names[digest[0] * len(names) // 256]}"


def _motif(terms: list[str], digest: bytes) -> str:
    """The motif whose words the key terms name first, else one by chance of the title."""
    for term in terms:
        for motif, its_words in _MOTIFS_BY_WORD.items():
            if term in its_words:
                return motif
    return sorted(_DRAWINGS)[digest[1] % len(_DRAWINGS)]


def _numbers(terms: list[str], digest: bytes) -> list[int]:
    """Bytes that place the shapes: of the title, then of each key term."""
    found = list(digest)
    for term in terms:
        found += hashlib.sha256(term.encode()).digest()[:8]
    return found


def _graph(numbers: list[int]) -> str:
    points = [
        (
            700 + (numbers[i] * 450) // 255,
            60 + i * 60 + (numbers[i + 9] * 50) // 255,
            10 + numbers[i + 18] % 18,
        )
        for i in range(9)
    ]
    edges = [
        f'<path d="M{a[0]} {a[1]} L{b[0]} {b[1]}" stroke="SHAPE" stroke-width="3"/>'
        for a, b in pairwise(points)
    ]
    nodes = [
        f'<circle cx="{x}" cy="{y}" r="{r}" fill="{"ACCENT" if index % 3 == 0 else "SHAPE"}"/>'
        for index, (x, y, r) in enumerate(points)
    ]
    return "".join(edges + nodes)


def _bars(numbers: list[int]) -> str:
    return "".join(
        f'<rect x="{720 + i * 44}" y="{560 - 60 - numbers[i]}" width="30" height="{60 + numbers[i]}" rx="4" '
        f'fill="{"ACCENT" if numbers[i + 10] % 4 == 0 else "SHAPE"}"/>'
        for i in range(10)
    )


def _rings(numbers: list[int]) -> str:
    rings = "".join(
        f'<circle cx="930" cy="315" r="{40 + i * 38}" fill="none" stroke="SHAPE" '
        f'stroke-width="{4 + numbers[i] % 9}" '
        f'stroke-dasharray="{20 + numbers[i + 8]} {10 + numbers[i + 16] % 40}"/>'
        for i in range(6)
    )
    angle = numbers[1] / 255 * 2 * math.pi
    x, y = round(930 + 190 * math.cos(angle)), round(315 + 190 * math.sin(angle))
    return f'{rings}<path d="M930 315 L{x} {y}" stroke="ACCENT" stroke-width="10" stroke-linecap="round"/>'


def _waves(numbers: list[int]) -> str:
    lines = []
    for row in range(6):
        heights = [90 + row * 90 + (numbers[row * 5 + i] % 70) - 35 for i in range(6)]
        curve = " ".join(f"T{740 + i * 80} {height}" for i, height in enumerate(heights))
        colour = "ACCENT" if row == numbers[0] % 6 else "SHAPE"
        lines.append(
            f'<path d="M660 {90 + row * 90} {curve}" fill="none" stroke="{colour}" stroke-width="6"/>'
        )
    return "".join(lines)


def _tiles(numbers: list[int]) -> str:
    return "".join(
        f'<rect x="{740 + (i % 5) * 84}" y="{75 + (i // 5) * 100}" width="70" height="84" rx="8" '
        f'fill="{"ACCENT" if numbers[i] % 5 == 0 else "SHAPE"}" '
        f'opacity="{0.35 + (numbers[i] % 60) / 100:.2f}"/>'
        for i in range(25)
    )


_DRAWINGS: dict[str, Callable[[list[int]], str]] = {
    "bars": _bars,
    "graph": _graph,
    "rings": _rings,
    "tiles": _tiles,
    "waves": _waves,
}


def _svg(title: str, alt: str, shapes: str, palette: dict[str, str]) -> str:
    coloured = shapes.replace("SHAPE", palette["shape"]).replace("ACCENT", palette["accent"])
    lines = _wrapped(title)
    first = 315 - (len(lines) - 1) * 32
    spans = "".join(
        f'<tspan x="70" y="{first + row * 64}">{_xml(line)}</tspan>' for row, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img"><title>{_xml(alt)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{palette["background"]}"/>{coloured}'
        f'<text font-family="Georgia, serif" font-size="50" fill="{palette["text"]}">{spans}</text></svg>'
    )


def _xml(text: str) -> str:
    """Escaped, without the control characters that XML does not allow."""
    allowed = "".join(char for char in text if char.isprintable() and not "\ud800" <= char <= "\udfff")
    return escape(allowed)


def _wrapped(title: str) -> list[str]:
    """At most five lines; a word longer than a line is cut, the rest is marked as left out."""
    lines = [""]
    for word in title.split():
        pieces = [word[i : i + LINE_CHARACTERS] for i in range(0, len(word), LINE_CHARACTERS)]
        for piece in pieces:
            if len(lines[-1]) + len(piece) + 1 > LINE_CHARACTERS and lines[-1]:
                lines.append("")
            lines[-1] = f"{lines[-1]} {piece}".strip()
    if len(lines) > MAX_LINES:
        lines = lines[:MAX_LINES]
        lines[-1] = lines[-1][: LINE_CHARACTERS - 1].rstrip() + "…"
    return lines

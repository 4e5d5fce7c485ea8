"""What the demo prints at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

from demo_ledger import ItemProgress


class Problem(Protocol):
    """What the check of a published page found wrong; its text names the page."""

    def __str__(self) -> str: ...


def latency_table(items: Sequence[ItemProgress], stages: Sequence[str]) -> str:
    """One line for each item: state, seconds end to end, and the trigger latency of each stage."""
    header = ["item", "state", "end to end", *stages]
    rows = [
        [item.key, item.state.value, _end_to_end(item), *(_visits(item, s) for s in stages)] for item in items
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        first_two = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        figures = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*first_two, *figures]).rstrip())
    return "\n".join(lines)


def median_latency(items: Sequence[ItemProgress]) -> float | None:
    """Seconds from a grant to the first task's start, over all stages and items."""
    figures = [s for item in items for visits in item.latencies.values() for s in visits]
    return median(figures) if figures else None


def report(
    items: Sequence[ItemProgress], *, stages: Sequence[str], output: Path, problems: Sequence[Problem]
) -> str:
    """The whole closing text."""
    latency = median_latency(items)
    pages = sorted((output / "pages").glob("*.html"))
    lines = [
        "",
        latency_table(items, stages),
        "",
        "figures under a stage: seconds from the grant to the start of its first task; two when it ran twice",
        f"median trigger latency: {'none measured' if latency is None else f'{latency:.2f} s'}",
        "",
        *(f"{item.key} is dead: {item.error}" for item in items if item.state.value == "dead"),
        f"published: {len(pages)} pages",
        *(f"  {page}" for page in pages),
        *(f"  {output / name}" for name in ("index.html", "feed.xml") if (output / name).exists()),
        "citations: all found in the installed packages" if not problems else "citations:",
        *(f"  WRONG {problem}" for problem in problems),
    ]
    return "\n".join(lines)


def _end_to_end(item: ItemProgress) -> str:
    return "-" if item.seconds is None else f"{item.seconds:.1f} s"


def _visits(item: ItemProgress, stage: str) -> str:
    return " ".join(f"{s:.2f}" for s in item.latencies.get(stage, [])) or "-"

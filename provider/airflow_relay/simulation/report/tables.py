"""The report for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from airflow_relay.simulation.experiment import Result
from airflow_relay.simulation.report.figures import number, rows, spread, verdicts
from airflow_relay.simulation.what_if import bottleneck

_WIDTH = 100


def render(result: Result, *, notes: Sequence[str] = (), bottlenecks: bool = False) -> str:
    """Models side by side, then the document's claims."""
    names = list(result.outcomes)
    lines = [
        result.scenario.title,
        f"{result.days} days, seeds {result.seeds[0]} to {result.seeds[-1]}; ± is a 95 % confidence interval",
        "",
    ]
    lines += [f"{name:<22}{outcome.model.title}" for name, outcome in result.outcomes.items()]
    head = ["", *names]
    body = [
        [f"{row.title}{f' ({row.unit})' if row.unit else ''}", *(spread(e) for e in row.estimates.values())]
        for row in rows(result)
    ]
    body += [
        [
            f"end-to-end of all seeds, {title} (h)",
            *(number(o.end_to_end.quantile(q)) for o in result.outcomes.values()),
        ]
        for title, q in (("median", 0.5), ("p95", 0.95))
        if any(o.end_to_end.count for o in result.outcomes.values())
    ]
    lines += ["", *_grid([head, *body])]
    lines += _claims(result)
    if bottlenecks:
        lines += ["", *(f"{name}: {bottleneck(outcome)}" for name, outcome in result.outcomes.items())]
    if notes:
        lines += ["", *(f"Mind: {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _claims(result: Result) -> list[str]:
    found = verdicts(result)
    if not found:
        return []
    table = [["The document's numbers", "document", "twin", "stated inputs alone", ""]]
    for v in found:
        literal = "" if v.literal is None else spread(v.literal)
        table.append(
            [
                v.claim.text,
                v.said,
                f"{spread(v.estimate)} {v.claim.unit}",
                literal,
                v.standing.value,
            ]
        )
    notes = [f"{v.claim.text}: {v.claim.note}" for v in found if v.claim.note]
    wrapped = [line for note in notes for line in textwrap.wrap(note, _WIDTH, subsequent_indent="  ")]
    return ["", *_grid(table), "", *wrapped]


def _grid(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return [lines[0], "  ".join("-" * w for w in widths), *lines[1:]]

"""The chapter "Digital twin" of the results, written by a command from the shipped scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_relay.simulation.experiment import Progress, Result, simulate
from airflow_relay.simulation.report.figures import Standing, Verdict, inputs, rows, spread, verdicts
from airflow_relay.simulation.scenario_file import load

ORDER: Final = ("content", "bad_day", "newsroom", "overnight", "doom_spiral")

MEASURED: Final = "<!-- measured: what follows is kept when this page is written again -->"

_INTRO: Final = """# Digital twin

The twin runs the work that the three source documents describe in simulated time, once the way they did it
before and once by Relay's rules. Relay's side is not a model of the rules but the rules: dispatcher, breaker,
recovery, barrier and the life of an item are the functions of `core/` that run in production.

This page is written by `airflow relay simulate --results --to docs/results-twin.md` and is the same for
the same seeds. ± is a 95 % confidence interval of the mean over the seeds. "Stated inputs alone" is the
figure that follows from the document's own inputs, where the twin needed an assumption beyond them. "At
the edge" means that the mean lies outside of the range and its confidence interval reaches into it. The
ranges are the documents', in their wording or, where they give one figure, with the margin that the note
names. Speed and the comparison with a real Airflow are measured by `benchmarks/simulation_speed.py` and
`benchmarks/twin_validation.py`.
"""


def write(progress: Progress = lambda: None) -> str:
    """Run every shipped scenario and put the chapter together (Markdown)."""
    results = [simulate(load(name), progress=progress) for name in ORDER]
    parts = [_INTRO, _summary(results)]
    parts += [_scenario(result) for result in results]
    return "\n".join(parts)


def with_measured(text: str, old: str) -> str:
    """The new chapter, with what people have written below the mark in the old one."""
    _, mark, below = old.partition(MEASURED)
    return f"{text}\n{MEASURED}{below if mark else chr(10)}"


def _summary(results: Sequence[Result]) -> str:
    lines = [
        "## The documents' numbers",
        "",
        "| | document | twin | stated inputs alone | |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        lines += [_claim_row(v) for v in verdicts(result)]
    lines += ["", "Notes:", ""]
    for result in results:
        lines += [f"- **{v.claim.text}.** {v.claim.note}" for v in verdicts(result) if v.claim.note]
    return "\n".join([*lines, ""])


def _claim_row(v: Verdict) -> str:
    unit = f" {v.claim.unit}" if v.claim.unit else ""
    literal = "" if v.literal is None else f"{spread(v.literal)}{unit}"
    held = f"**{v.standing.value}**" if v.standing is Standing.OUTSIDE else v.standing.value
    return _row([v.claim.text, f"{v.said} (“{v.claim.quote}”)", f"{spread(v.estimate)}{unit}", literal, held])


def _scenario(result: Result) -> str:
    scenario = result.scenario
    lines = [
        f"## {scenario.title}",
        "",
        f"Scenario `{scenario.name}`, {result.days} days, {len(result.seeds)} seeds. {scenario.document}",
        "",
    ]
    names = list(result.outcomes)
    lines += [f"- `{name}`: {o.model.title}.{_note(o.model.note)}" for name, o in result.outcomes.items()]
    lines += ["", _row(["", *(f"`{n}`" for n in names)]), "|---" * (len(names) + 1) + "|"]
    for row in rows(result):
        title = f"{row.title}, {row.unit}" if row.unit else row.title
        lines.append(_row([title, *(spread(e) for e in row.estimates.values())]))
    lines += [
        "",
        "<details><summary>Inputs</summary>",
        "",
        "| number | value | where it comes from |",
        "|---|---|---|",
    ]
    lines += [_row([i.where, i.value, i.origin]) for i in inputs(scenario)]
    lines += ["", "</details>", ""]
    if scenario.findings:
        lines += ["Where the document does not agree with itself:", ""]
        lines += [f"- {f.where}: {f.what}" for f in scenario.findings]
        lines.append("")
    return "\n".join(lines)


def _note(note: str) -> str:
    return f" {note[0].upper()}{note[1:]}." if note else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

"""What the documents claim beside what the twin finds, written by a command from the shipped scenarios.

Two pages of a documentation folder: the one table in ``results.md``, between two marks, and
``results-twin.md`` with each scenario's figures, inputs and the documents' contradictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from airflow_relay.simulation.experiment import Progress, Result, simulate
from airflow_relay.simulation.report.figures import Standing, Verdict, inputs, rows, spread, verdicts
from airflow_relay.simulation.scenario_file import load

ORDER: Final = ("content", "bad_day", "newsroom", "overnight", "doom_spiral")

COMMAND: Final = "airflow relay simulate --results docs"

TABLE_BEGINS: Final = "<!-- twin: begin -->"
TABLE_ENDS: Final = "<!-- twin: end -->"

MEASURED: Final = "<!-- measured: what follows is kept when this page is written again -->"

_INTRO: Final = """# Digital twin

The twin runs the work that the three source documents describe in simulated time, once the way they did it
before and once by Relay's rules. Relay's side is not a model of the rules but the rules: dispatcher, breaker,
recovery, barrier and the life of an item are the functions of `core/` that run in production.

This page has each scenario's figures and, below them, every input with its source or the word ASSUMPTION.
What follows from them for the documents' claims is one table in [results.md](results.md). Both are written
by `make results-twin` (`{command}`) and are the same for the same seeds. ± is a 95 % confidence
interval of the mean over the seeds. Speed and the comparison with a real Airflow are measured by
`benchmarks/simulation_speed.py` and `benchmarks/twin_validation.py`.
"""

_TABLE_INTRO: Final = """The documents' before → after numbers, written by `make results-twin`. Inputs are in
[results-twin.md](results-twin.md). ± is a 95 % confidence interval of the mean over the seeds. "Stated inputs
alone" is the figure that follows from the document's own inputs, where the twin needed an assumption beyond
them. "At the edge" means that the mean lies outside of the range and its confidence interval reaches into it.
The ranges are the documents', in their wording or, where they give one figure, with the margin that the note
names.
"""


class PageError(Exception):
    """A page has no place for the table."""


def write(folder: Path, progress: Progress = lambda: None) -> None:
    """Run every shipped scenario and write both pages.

    :raises PageError: ``results.md`` is not there or has no marks; nothing is simulated then.
    """
    summary, details = folder / "results.md", folder / "results-twin.md"
    page = summary.read_text(encoding="utf-8") if summary.is_file() else ""
    with_table(page, "", summary)
    results = [simulate(load(name), progress=progress) for name in ORDER]
    old = details.read_text(encoding="utf-8") if details.is_file() else ""
    details.write_text(with_measured(scenarios(results), old), encoding="utf-8")
    summary.write_text(with_table(page, table(results), summary), encoding="utf-8")


def scenarios(results: Sequence[Result]) -> str:
    """Each scenario's figures, inputs and contradictions (Markdown)."""
    return "\n".join([_INTRO.format(command=COMMAND), *map(_scenario, results)])


def with_table(page: str, text: str, where: Path) -> str:
    """The page with this text between its marks.

    :raises PageError: it has no such marks.
    """
    before, begin, rest = page.partition(TABLE_BEGINS)
    _, end, after = rest.partition(TABLE_ENDS)
    if not begin or not end:
        raise PageError(f"{where}: the table goes between the lines {TABLE_BEGINS!r} and {TABLE_ENDS!r}")
    return f"{before}{begin}\n{text}{end}{after}"


def with_measured(text: str, old: str) -> str:
    """The new chapter, with what people have written below the mark in the old one."""
    _, mark, below = old.partition(MEASURED)
    return f"{text}\n{MEASURED}{below if mark else chr(10)}"


def table(results: Sequence[Result]) -> str:
    """Every claim of the documents beside the twin's figure, and the notes (Markdown)."""
    lines = [
        _TABLE_INTRO,
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

"""The report: rendered from what the tracks have found, with those that were tapped out named in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from include.content.files import locked, write_atomically
from include.content.names import file_stem

_TEMPLATES = Path(__file__).parent / "templates"


def render_report(barrier: Mapping[str, Any], follow_up: Mapping[str, Any] | None, *, now: datetime) -> str:
    """The report as HTML; every value is escaped.

    :param barrier: what the barrier pushed: ``outcome``, ``elapsed_h``, ``tracks`` and ``tapped_out``.
    :param follow_up: the follow-up track's findings, or ``None`` when it was tapped out itself.
    :param now: when it is written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only the report needs it

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    complete = [(name, t["result"]) for name, t in barrier["tracks"].items() if t["phase"] == "complete"]
    tapped_out = dict(barrier["tapped_out"])
    sections = list(complete)
    if follow_up is None:
        tapped_out["follow_up"] = "its task did not succeed; see the task's log"
    else:
        sections.append(("follow_up", follow_up))
    return environment.get_template("report.html.j2").render(
        title=f"Overnight report, {now:%d %B %Y}",
        tracks=barrier["tracks"],
        complete=complete,
        elapsed_h=barrier["elapsed_h"],
        forced=barrier["outcome"] == "force_proceed",
        written_at=f"{now:%Y-%m-%d %H:%M} UTC",
        tapped_out=tapped_out,
        sections=sections,
    )


def write_report(html: str, folder: Path, run_id: str) -> Path:
    """Write the report of a run; the same run's report is replaced, never half written."""
    with locked(folder):
        return write_atomically(folder, f"{file_stem(run_id)}.html", html)

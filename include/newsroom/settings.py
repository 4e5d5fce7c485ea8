"""Where the newsroom reads and writes. Everything is resolved when asked, never at import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

OUTPUT_VARIABLE = "RELAY_NEWSROOM_OUTPUT"
BRIEFS_VARIABLE = "RELAY_NEWSROOM_BRIEFS"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class NewsroomSettings:
    """The folders of one deployment."""

    output: Path
    """Where articles are shipped to: ``<publication>/<stem>.md`` and ``.json``; need not exist yet."""
    briefs: Path
    """One folder of briefs (``*.md``) per publication."""
    manuscripts: Path
    """One folder per publication: a brief that has a manuscript of its name starts from that draft."""


def newsroom_settings() -> NewsroomSettings:
    """Read the settings from the environment.

    ``RELAY_NEWSROOM_OUTPUT``: default ``$AIRFLOW_HOME/newsroom`` (``~/airflow`` when unset, as in Airflow).
    ``RELAY_NEWSROOM_BRIEFS``: default, the briefs beside this file.
    """
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    output = Path(os.environ.get(OUTPUT_VARIABLE) or home / "newsroom").expanduser().absolute()
    briefs = Path(os.environ.get(BRIEFS_VARIABLE) or _HERE / "briefs").expanduser().absolute()
    return NewsroomSettings(output=output, briefs=briefs, manuscripts=_HERE / "manuscripts")

"""Where the content pipeline reads and writes. Everything is resolved when asked, never at import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

OUTPUT_VARIABLE = "RELAY_CONTENT_OUTPUT"
BRIEFS_VARIABLE = "RELAY_CONTENT_BRIEFS"
BASE_URL_VARIABLE = "RELAY_CONTENT_BASE_URL"


@dataclass(frozen=True)
class ContentSettings:
    """The folders of one deployment."""

    output: Path
    """The folder that pages, index and feed are written to; absolute, need not exist yet."""
    briefs: Path
    """The folder with the briefs (``*.md``)."""
    base_url: str
    """The address of ``output`` for the feed's links, without a last slash; default: a ``file:`` URI."""


def content_settings() -> ContentSettings:
    """Read the settings from the environment.

    ``RELAY_CONTENT_OUTPUT``: default ``$AIRFLOW_HOME/published`` (``~/airflow`` when unset, as in Airflow).
    ``RELAY_CONTENT_BRIEFS``: default, the briefs beside this file.
    ``RELAY_CONTENT_BASE_URL``: where a web server shows the output folder.
    """
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    output = Path(os.environ.get(OUTPUT_VARIABLE) or home / "published").expanduser().absolute()
    briefs = Path(os.environ.get(BRIEFS_VARIABLE) or Path(__file__).parent / "briefs").expanduser().absolute()
    base_url = os.environ.get(BASE_URL_VARIABLE) or output.as_uri()
    return ContentSettings(output=output, briefs=briefs, base_url=base_url.rstrip("/"))

"""Real text for tests of the agent server: the documentation of Airflow's own settings."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

QUESTION = "How does the scheduler limit how many DAG runs and task instances run at the same time?"


@lru_cache(maxsize=1)
def settings_sources() -> tuple[dict[str, Any], ...]:
    """One source for each documented setting, with the line where its description begins."""
    import airflow.config_templates

    path = Path(airflow.config_templates.__path__[0]) / "config.yml"
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    found = []
    for section, content in yaml.safe_load(text).items():
        for name, option in (content.get("options") or {}).items():
            description = option.get("description")
            if description:
                first = description.split("\n")[0].strip()
                start = lines.index(f"    {name}:") if f"    {name}:" in lines else 0
                line = next((n for n in range(start, len(lines)) if lines[n].strip() == first), start)
                found.append(
                    {
                        "id": f"{section}.{name}",
                        "title": f"[{section}] {name}",
                        "path": path.name,
                        "line": line + 1,
                        "text": description,
                    }
                )
    return tuple(found)

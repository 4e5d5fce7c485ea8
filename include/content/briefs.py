"""Briefs: the questions that the content pipeline answers, one Markdown file each.

A brief starts with YAML between two ``---`` lines (title, question, audience, priority, tags, terms)
and goes on with a paragraph of background for the writer. Its key is the file's stem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FIELDS = frozenset({"title", "question", "audience", "priority", "tags", "terms"})


class BriefError(ValueError):
    """A brief that cannot be read; the text names the file, the field and the cure."""


@dataclass(frozen=True)
class Brief:
    """One question for the pipeline."""

    key: str
    """The item's key: the file's stem."""
    title: str
    question: str
    audience: str
    """Who the page is for, in a few words."""
    priority: int
    """The item's own priority from 0 (default) to 100; higher goes first among equals."""
    tags: tuple[str, ...]
    terms: tuple[str, ...]
    """Words to look for in the sources, next to the question's own."""
    background: str
    """What the reader's situation is, in Markdown; may be empty."""

    def as_payload(self) -> dict[str, Any]:
        """The brief as an item's payload: JSON values only."""
        return {
            "key": self.key,
            "title": self.title,
            "question": self.question,
            "audience": self.audience,
            "priority": self.priority,
            "tags": list(self.tags),
            "terms": list(self.terms),
            "background": self.background,
        }


def read_briefs(folder: Path) -> list[Brief]:
    """Read every ``*.md`` of a folder, sorted by key.

    Raises `BriefError` for a folder that is not there and for the first brief that is wrong.
    """
    if not folder.is_dir():
        raise BriefError(f"{folder}: there is no such folder of briefs")
    return [read_brief(file) for file in sorted(folder.glob("*.md"))]


def read_brief(file: Path) -> Brief:
    """Read one brief. Raises `BriefError` naming the file and the field."""
    fields, background = _split(file)
    for name in fields:
        if name not in _FIELDS:
            raise BriefError(f"{file}: unknown field {name!r}; known are {', '.join(sorted(_FIELDS))}")
    return Brief(
        key=file.stem,
        title=_text(file, fields, "title"),
        question=_text(file, fields, "question"),
        audience=_text(file, fields, "audience"),
        priority=_priority(file, fields),
        tags=_list(file, fields, "tags"),
        terms=_list(file, fields, "terms"),
        background=background,
    )


def _split(file: Path) -> tuple[dict[str, Any], str]:
    text = file.read_text(encoding="utf-8")
    opening, _, rest = text.partition("\n")
    head, found, body = rest.partition("\n---")
    if opening.strip() != "---" or not found:
        raise BriefError(f"{file}: no front matter; start with a line ---, the fields, and a line ---")
    try:
        fields = yaml.safe_load(head)
    except yaml.YAMLError as error:
        raise BriefError(f"{file}: the front matter is no YAML: {error}") from error
    if not isinstance(fields, dict):
        raise BriefError(f"{file}: the front matter must be lines of 'field: value'")
    return fields, body.strip()


def _text(file: Path, fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BriefError(f"{file}: field {name!r} must be a text that is not empty, got {value!r}")
    return " ".join(value.split())


def _list(file: Path, fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v.strip() for v in value):
        raise BriefError(f"{file}: field {name!r} must be a list of one or more texts, got {value!r}")
    return tuple(" ".join(entry.split()) for entry in value)


def _priority(file: Path, fields: Mapping[str, Any]) -> int:
    value = fields.get("priority", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise BriefError(f"{file}: field 'priority' must be a whole number from 0 to 100, got {value!r}")
    return value

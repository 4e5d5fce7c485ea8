"""What each stage sends to the agent server, made from the item's payload and the earlier stages' results.

Pure functions of JSON values, except that `research_payload` reads the installed packages. ``results`` maps
a stage to its latest result.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .evidence import as_evidence
from .sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Json = Mapping[str, Any]
    Results = Mapping[str, Json]

STAGES = ("research", "write", "self_review", "dedup_check", "art_direction", "publish")


class MissingResultError(LookupError):
    """A stage runs without the result that it builds on; the text names both stages."""


def research_payload(item: Json, *, limit: int = 12) -> dict[str, Any]:
    """The question, the brief's background and the preselected sources."""
    sources = find_sources(item["question"], item["terms"], limit=limit)
    return {
        "question": item["question"],
        "brief": brief_text(item),
        "sources": [source.as_payload() for source in sources],
    }


def write_payload(item: Json, results: Results) -> dict[str, Any]:
    """The passages to write from; after a review that sent a draft back, draft and feedback too."""
    payload: dict[str, Any] = {
        "question": item["question"],
        "title": item["title"],
        "passages": _evidence(results, "write"),
    }
    feedback = results.get("self_review", {}).get("feedback")
    if feedback:
        payload |= {"feedback": feedback, "draft": _of(results, "write", "write")}
    return payload


def self_review_payload(results: Results) -> dict[str, Any]:
    """The draft and the passages that its citations refer to."""
    return {
        "draft": _of(results, "write", "self_review"),
        "passages": _evidence(results, "self_review"),
    }


def dedup_check_payload(results: Results, others: Iterable[tuple[str, Json]]) -> dict[str, Any]:
    """The draft and the drafts to compare it with.

    :param others: key and draft of the items that have passed this stage already. Taking only those, with
        a limit of 1 on the stage, discards exactly one of two near duplicates.
    """
    return {
        "draft": _of(results, "write", "dedup_check"),
        "others": [{"key": key, "text": draft_text(draft)} for key, draft in others],
    }


def art_direction_payload(results: Results) -> dict[str, Any]:
    """The draft to make a cover for."""
    return {"draft": _of(results, "write", "art_direction")}


def publish_payload(results: Results) -> dict[str, Any]:
    """The draft to describe for readers and feeds."""
    return {"draft": _of(results, "write", "publish")}


def draft_text(draft: Json) -> str:
    """The draft as plain text, the way two drafts are compared: title, summary, headings and sentences."""
    lines = [str(draft.get("title", "")), *(str(sentence["text"]) for sentence in draft.get("summary", ()))]
    for section in draft.get("sections", ()):
        lines.append(str(section["heading"]))
        lines += [str(sentence["text"]) for sentence in section["sentences"]]
    return "\n".join(line for line in lines if line)


def brief_text(item: Json) -> str:
    """The brief as a short text for the agent."""
    lines = [f"Title: {item['title']}", f"For: {item['audience']}", f"Look for: {', '.join(item['terms'])}"]
    return "\n".join([*lines, *([item["background"]] if item.get("background") else [])])


@lru_cache(maxsize=len(STAGES))
def instructions(stage: str) -> str:
    """The instruction text of a stage, for a backend that is a language model.

    Raises ValueError for a stage that the content pipeline does not have.
    """
    if stage not in STAGES:
        raise ValueError(f"there are no instructions for stage {stage!r}; stages are {', '.join(STAGES)}")
    return (Path(__file__).parent / "prompts" / f"{stage}.md").read_text(encoding="utf-8").strip()


def _evidence(results: Results, needed_by: str) -> list[dict[str, Any]]:
    return [as_evidence(passage) for passage in _of(results, "research", needed_by)["passages"]]


def _of(results: Results, stage: str, needed_by: str) -> Json:
    result = results.get(stage)
    if not result:
        raise MissingResultError(f"stage {needed_by!r} needs the result of {stage!r}, and the item has none")
    return result

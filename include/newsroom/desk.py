"""What each phase sends to the agent server, made from the item's payload and the earlier phases' results.

Functions of JSON values, except that `research_payload` reads the installed packages and `find_briefs` and
`instructions` read the newsroom's own files. ``results`` maps a stage to what its agents found.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.content.briefs import read_briefs
from include.content.evidence import as_evidence
from include.content.payloads import MissingResultError, research_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .settings import NewsroomSettings

    Json = Mapping[str, Any]
    Results = Mapping[str, Json]

__all__ = [
    "critique_payload",
    "draft_job",
    "draft_of",
    "find_briefs",
    "instructions",
    "qa_payload",
    "research_payload",
    "ship_payload",
    "shipped_draft",
]

PROMPTS = ("research", "draft", "improve", "critique", "qa", "ship")


def find_briefs(settings: NewsroomSettings, publication: str) -> list[dict[str, Any]]:
    """The intake of a publication: each brief is an item, with its manuscript when somebody has sent one."""
    found = []
    for brief in read_briefs(settings.briefs / publication):
        manuscript = settings.manuscripts / publication / f"{brief.key}.md"
        text = manuscript.read_text(encoding="utf-8") if manuscript.is_file() else None
        payload = {**brief.as_payload(), "publication": publication, "manuscript": text}
        found.append({"key": brief.key, "payload": payload, "priority": brief.priority})
    return found


def draft_job(item: Json, results: Results, *, status: str) -> dict[str, Any]:
    """Which job makes this round's draft, and its input: ``{"job", "input"}``.

    A manuscript is only tidied before the critics see it for the first time. Every other draft is written
    from the passages; one that came back, with the findings of those who sent it back.

    :param status: the item's; it tells who sent the draft back.
    """
    if item.get("manuscript") and "draft" not in results:
        return {"job": "improve", "input": {"draft": item["manuscript"]}}
    payload: dict[str, Any] = {
        "question": item["question"],
        "title": item["title"],
        "passages": _evidence(results, "draft"),
    }
    feedback = _feedback(results, status)
    if feedback:
        payload |= {"feedback": feedback, "draft": draft_of(results, "draft")}
    return {"job": "draft", "input": payload}


def critique_payload(results: Results) -> dict[str, Any]:
    """The draft, and the passages that its citations refer to."""
    return {"draft": draft_of(results, "critique"), "passages": _evidence(results, "critique")}


def qa_payload(results: Results) -> dict[str, Any]:
    """The same for the last check."""
    return {"draft": draft_of(results, "qa"), "passages": _evidence(results, "qa")}


def ship_payload(results: Results) -> dict[str, Any]:
    """The draft to be made ready for readers."""
    return {"draft": draft_of(results, "ship")}


def shipped_draft(results: Results, polished: Json) -> dict[str, Any]:
    """The draft as it is shipped: its references are the passages as research found them, word for word.

    The writer gets them as whole sentences that name their subject; a reader checks them against the file.
    """
    draft = polished["draft"]
    cited = {n for part in _sentences(draft) for n in part["citations"]}
    passages = _of(results, "research", "ship")["passages"]
    return {**draft, "references": [passage for passage in passages if passage["n"] in cited]}


def _sentences(draft: Json) -> list[Json]:
    return [*draft["summary"], *(part for section in draft["sections"] for part in section["sentences"])]


def draft_of(results: Results, needed_by: str) -> Json:
    """The latest draft, whichever job has made it."""
    made = _of(results, "draft", needed_by)
    draft: Json = made.get("draft", made)
    return draft


@lru_cache(maxsize=32)
def instructions(job: str) -> str:
    """The instruction text of a job, for a backend that is a language model.

    :param job: one of the phases, or ``critique/<critic>``.
    :raises ValueError: the newsroom has no such job.
    """
    phase, _, critic = job.partition("/")
    if phase not in PROMPTS:
        raise ValueError(f"there are no instructions for job {job!r}; jobs are {', '.join(PROMPTS)}")
    folder = Path(__file__).parent / "prompts"
    text = (folder / f"{phase}.md").read_text(encoding="utf-8").strip()
    if not critic:
        return text
    own = (folder / f"critic_{critic}.md").read_text(encoding="utf-8").strip()
    return f"{own}\n\n{text}"


def _feedback(results: Results, status: str) -> list[Any]:
    from_whom = {"critiqued": "critique", "checked": "qa"}.get(status)
    return list(results.get(from_whom, {}).get("feedback") or ()) if from_whom else []


def _evidence(results: Results, needed_by: str) -> list[dict[str, Any]]:
    return [as_evidence(passage) for passage in _of(results, "research", needed_by)["passages"]]


def _of(results: Results, stage: str, needed_by: str) -> Json:
    result = results.get(stage)
    if not result:
        raise MissingResultError(f"stage {needed_by!r} needs the result of {stage!r}, and the item has none")
    return result

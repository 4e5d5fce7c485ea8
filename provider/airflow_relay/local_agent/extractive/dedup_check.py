"""Job ``dedup_check``: is there already a text that says the same?"""

from __future__ import annotations

from typing import Any

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.draft import parse_draft
from airflow_relay.local_agent.extractive.similarity import containment, cosine_matrix, shingles

THRESHOLD = 0.6
"""Share of common shingles from which a text counts as a duplicate."""


def dedup_check(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``draft``, ``others``: ``[{"key", "text" (or "draft")}]``, optional ``threshold`` (0 to 1).

    Output ``{"verdict": "unique"|"duplicate", "similarity", "nearest": key or null, "cosine", "threshold",
    "compared"}``: similarity is the share of the shorter text's three-word shingles that the other has too;
    the TF-IDF cosine breaks ties.

    :raises InvalidInputError: an entry without key or text, or a threshold out of range.
    """
    threshold = _threshold(payload.get("threshold"))
    text = parse_draft(payload["draft"]).text
    others = _others(payload["others"])
    if not others:
        return _verdict(0.0, None, 0.0, threshold, 0)
    own = shingles(text)
    cosines = cosine_matrix([text, *(other for _, other in others)])[0][1:]
    ranked = [
        (containment(own, shingles(other)), float(cosine), key)
        for (key, other), cosine in zip(others, cosines, strict=True)
    ]
    similarity, cosine, key = max(ranked, key=lambda entry: (entry[0], entry[1]))
    return _verdict(similarity, key, cosine, threshold, len(others))


def _verdict(
    similarity: float, key: str | None, cosine: float, threshold: float, compared: int
) -> dict[str, Any]:
    return {
        "verdict": "duplicate" if similarity >= threshold else "unique",
        "similarity": round(similarity, 3),
        "nearest": key,
        "cosine": round(cosine, 3),
        "threshold": threshold,
        "compared": compared,
    }


def _threshold(value: Any) -> float:
    if value is None:
        return THRESHOLD
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidInputError("'threshold' must be a number above 0 and up to 1")
    return float(value)


def _others(value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, list):
        raise InvalidInputError("'others' must be a list of objects with 'key' and 'text'")
    found = []
    for position, item in enumerate(value, start=1):
        content = (item.get("text") or item.get("draft")) if isinstance(item, dict) else None
        if not content or "key" not in item:
            raise InvalidInputError(f"entry {position} of 'others' needs 'key' and 'text'")
        found.append((str(item["key"]), content if isinstance(content, str) else parse_draft(content).text))
    return found

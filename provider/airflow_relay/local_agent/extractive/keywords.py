"""Key terms of a draft."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from airflow_relay.local_agent.extractive.text import stems, surface_forms

if TYPE_CHECKING:
    from airflow_relay.local_agent.extractive.draft import Draft

KEY_TERMS = 8
TITLE_WEIGHT = 3


def key_terms(draft: Draft, *, limit: int = KEY_TERMS) -> list[str]:
    """The words that a draft is about: frequent stems, in their usual form; the title's count threefold."""
    forms = surface_forms([draft.text])
    counts = Counter(stems(draft.text))
    for stem in stems(draft.title):
        counts[stem] += TITLE_WEIGHT
    ranked = sorted((stem for stem in counts if stem in forms), key=lambda stem: (-counts[stem], stem))
    return [forms[stem] for stem in ranked[:limit]]

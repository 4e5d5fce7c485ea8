"""Likeness of texts: TF-IDF cosine, and word shingles.

Shingles after A. Broder, "On the resemblance and containment of documents", 1997.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from airflow_relay.local_agent.extractive.text import plain, stems, words

if TYPE_CHECKING:
    from collections.abc import Sequence

SHINGLE = 3
"""Words in a shingle."""


def cosine_matrix(texts: Sequence[str]) -> Any:
    """A square array of TF-IDF cosines, over stems; zeros where the texts have no words."""
    if not any(stems(text) for text in texts):
        return np.zeros((len(texts), len(texts)))
    vectors = TfidfVectorizer(analyzer=stems, sublinear_tf=True, norm="l2").fit_transform(texts)
    return (vectors @ vectors.T).toarray()


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Every run of three words, in lower case; a shorter text is one shingle."""
    found = words(plain(text))
    if not found:
        return frozenset()
    return frozenset(tuple(found[i : i + SHINGLE]) for i in range(max(1, len(found) - SHINGLE + 1)))


def containment(left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]) -> float:
    """Share of the smaller text's shingles that the other has too, 0 to 1."""
    smaller = min(len(left), len(right))
    return len(left & right) / smaller if smaller else 0.0

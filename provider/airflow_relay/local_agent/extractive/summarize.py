"""The sentences that stand for a text: those most like all of its others, in the order of the text."""

from __future__ import annotations

from airflow_relay.local_agent.extractive.similarity import cosine_matrix
from airflow_relay.local_agent.extractive.text import plain, sentences

LENGTH = 3
"""Sentences of a summary."""


def summarize(text: str) -> str:
    """A summary of at most :data:`LENGTH` sentences; a shorter text comes back as it is."""
    found = sentences(plain(text))
    if len(found) <= LENGTH:
        return text.strip()
    likeness = cosine_matrix(found).sum(axis=1)
    best = sorted(range(len(found)), key=lambda i: -likeness[i])[:LENGTH]
    return " ".join(found[i] for i in sorted(best))

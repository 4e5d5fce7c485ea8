"""Jobs ``publish`` and ``improve``: the last touches, and what a page needs around its text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slugify import slugify

from airflow_relay.local_agent.extractive.draft import Draft, Section, Sentence, parse_draft
from airflow_relay.local_agent.extractive.keywords import key_terms
from airflow_relay.local_agent.extractive.readability import measure, reading_minutes

MAX_DESCRIPTION = 155
"""Characters that search engines show."""
MAX_SLUG = 80


def polish(payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``draft``, optional ``existing_slugs``: [slug].

    Output ``{"draft": polished draft, "title", "slug", "meta_description", "keywords": [word],
    "reading_minutes", "word_count", "toc": [{"anchor", "heading"}], "readability": figures}``. Words stay
    as they are: only spaces, empty sections and repeated sentences go. The page itself is made elsewhere.
    """
    draft = _tidy(parse_draft(payload["draft"]))
    return {
        "draft": draft.to_record(),
        "title": draft.title,
        "slug": unique_slug(draft.title or "page", payload.get("existing_slugs") or []),
        "meta_description": _description(draft),
        "keywords": key_terms(draft),
        "reading_minutes": reading_minutes(draft.word_count),
        "word_count": draft.word_count,
        "toc": _contents(draft),
        "readability": measure([sentence.text for sentence in draft.all_sentences]).to_record(),
    }


def unique_slug(title: str, taken: list[str]) -> str:
    """A slug in ASCII, with a number behind it when it is taken."""
    base = slugify(title, max_length=MAX_SLUG, word_boundary=True) or "page"
    slug, number = base, 2
    while slug in taken:
        slug, number = f"{base}-{number}", number + 1
    return slug


def _tidy(draft: Draft) -> Draft:
    seen: set[str] = set()

    def clean(sentences: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
        kept = []
        for sentence in sentences:
            text = " ".join(sentence.text.split())
            if text.casefold() not in seen:
                seen.add(text.casefold())
                kept.append(replace(sentence, text=text))
        return tuple(kept)

    sections = tuple(
        Section(" ".join(section.heading.split()), clean(section.sentences)) for section in draft.sections
    )
    return replace(
        draft,
        title=" ".join(draft.title.split()),
        summary=clean(draft.summary),
        sections=tuple(section for section in sections if section.sentences),
    )


def _description(draft: Draft) -> str:
    text = " ".join(sentence.text for sentence in draft.summary or draft.body)
    if len(text) <= MAX_DESCRIPTION:
        return text
    return text[: MAX_DESCRIPTION - 1].rsplit(" ", 1)[0].rstrip(" ,;:…") + "…"


def _contents(draft: Draft) -> list[dict[str, str]]:
    anchors: list[str] = []
    for section in draft.sections:
        anchors.append(unique_slug(section.heading or "section", anchors))
    return [
        {"anchor": anchor, "heading": section.heading}
        for anchor, section in zip(anchors, draft.sections, strict=True)
    ]

"""The six newsroom critics. Each measures the text and takes points off ten for what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.extractive.arithmetic import wrong_sums
from airflow_relay.local_agent.extractive.draft import Draft, Sentence, parse_draft, parse_passages
from airflow_relay.local_agent.extractive.feedback import REVIEWED_SENTENCE_WORDS
from airflow_relay.local_agent.extractive.readability import measure
from airflow_relay.local_agent.extractive.self_review import supported
from airflow_relay.local_agent.extractive.text import plain, words
from airflow_relay.local_agent.extractive.wording import ABSOLUTE, ATTRIBUTION, LOADED, NAME, NUMBER, PASSIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FULL_MARKS = 10.0


@dataclass(frozen=True)
class Objection:
    points: float
    """Taken off the full ten."""
    code: str
    message: str
    sentence: str | None = None

    def to_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"code": self.code, "message": self.message, "points": self.points}
        return {**record, "sentence": self.sentence} if self.sentence else record


def structure(draft: Draft, _: list[dict[str, Any]]) -> Iterator[Objection]:
    """Title, introduction, headings, and sections of a size that can be taken in."""
    if not draft.title.strip():
        yield Objection(2.0, "title_missing", "There is no title.")
    if not draft.summary:
        yield Objection(1.5, "summary_missing", "There is no introduction before the first section.")
    elif len(draft.summary) > 5:
        yield Objection(
            0.5, "summary_long", f"The introduction has {len(draft.summary)} sentences; five are enough."
        )
    if draft.word_count > 150 and len(draft.sections) < 2:
        yield Objection(1.5, "few_headings", "More than 150 words stand under one heading.")
    yield from _sections(draft)
    if draft.word_count < 60:
        yield Objection(
            2.0, "too_short", f"The text has {draft.word_count} words; below 60 there is no structure."
        )


def _sections(draft: Draft) -> Iterator[Objection]:
    headings = [section.heading.strip().casefold() for section in draft.sections]
    for section, heading in zip(draft.sections, headings, strict=True):
        name = section.heading or "(no heading)"
        if not heading:
            yield Objection(0.8, "heading_missing", "A section has no heading.")
        elif headings.count(heading) > 1:
            yield Objection(0.5, "heading_twice", f"The heading “{name}” is there more than once.")
        if not section.sentences:
            yield Objection(1.0, "section_empty", f"The section “{name}” is empty.")
        size = sum(len(words(sentence.text)) for sentence in section.sentences)
        if size > 220:
            yield Objection(0.8, "section_long", f"The section “{name}” has {size} words; 220 are enough.")


def voice(draft: Draft, _: list[dict[str, Any]]) -> Iterator[Objection]:
    """Passive sentences, and the rhythm of sentence lengths."""
    sentences = draft.all_sentences
    passive = [sentence for sentence in sentences if PASSIVE.search(sentence.text)]
    share = len(passive) / len(sentences)
    if share > 0.35:
        worst = passive[0].text
        yield Objection(
            round(min(4.0, (share - 0.35) * 8), 1),
            "passive_voice",
            f"{len(passive)} of {len(sentences)} sentences are passive; a third is fine.",
            worst,
        )
    lengths = [len(words(sentence.text)) for sentence in sentences]
    mean = sum(lengths) / len(lengths)
    spread = (sum((length - mean) ** 2 for length in lengths) / len(lengths)) ** 0.5
    if len(lengths) > 3 and mean and spread / mean < 0.2:
        yield Objection(1.5, "monotone", f"All sentences are about {mean:.0f} words long; vary them.")
    for sentence in sentences:
        if len(sentence.text.split()) > REVIEWED_SENTENCE_WORDS:
            yield Objection(
                0.7, "long_sentence", f"{len(sentence.text.split())} words in one sentence.", sentence.text
            )
    yield from _same_openings(sentences)


def _same_openings(sentences: list[Sentence]) -> Iterator[Objection]:
    openings = [" ".join(words(sentence.text)[:2]) for sentence in sentences]
    for index in range(2, len(openings)):
        if openings[index] and openings[index] == openings[index - 1] == openings[index - 2]:
            yield Objection(
                0.6,
                "same_opening",
                f"Three sentences in a row begin “{openings[index]}”.",
                sentences[index].text,
            )


def ethics(draft: Draft, _: list[dict[str, Any]]) -> Iterator[Objection]:
    """Absolute claims and loaded words that nobody stands for."""
    for sentence in [Sentence(draft.title), *draft.all_sentences]:
        attributed = ATTRIBUTION.search(sentence.text)
        absolute = ABSOLUTE.search(sentence.text)
        if absolute and not attributed:
            yield Objection(
                0.4 if sentence.citations else 1.2,
                "absolute_claim",
                f"“{absolute[0]}” claims more than can be shown.",
                sentence.text,
            )
        loaded = LOADED.search(sentence.text)
        if loaded and not attributed:
            yield Objection(
                1.5, "loaded_word", f"“{loaded[0]}” judges without saying who judges.", sentence.text
            )


def shareability(draft: Draft, _: list[dict[str, Any]]) -> Iterator[Objection]:
    """A title and a summary that survive a link preview, and text that reads easily."""
    length = len(draft.title)
    if not 20 <= length <= 70:
        off = max(20 - length, length - 70)
        yield Objection(
            round(min(2.5, 0.5 + off / 20), 1),
            "title_length",
            f"The title has {length} characters; 20 to 70 fit.",
        )
    summary = len(" ".join(sentence.text for sentence in draft.summary))
    if not summary:
        yield Objection(2.0, "summary_missing", "There is no summary to show beside the link.")
    elif summary > 400:
        yield Objection(
            0.8, "summary_long", f"The summary has {summary} characters; previews show about 300."
        )
    ease = measure([sentence.text for sentence in draft.all_sentences]).flesch_reading_ease
    if ease < 45:
        yield Objection(
            round(min(3.0, (45 - ease) / 15), 1),
            "hard_to_read",
            f"Flesch reading ease is {ease}; 45 or more is easy.",
        )


def legal_accuracy(draft: Draft, passages: list[dict[str, Any]]) -> Iterator[Objection]:
    """Figures and names are claims of fact: each needs a citation that holds the figure."""
    texts = {int(passage["n"]): plain(passage["quote"]) for passage in passages}
    for sentence in draft.all_sentences:
        figures = [match[0].strip() for match in NUMBER.finditer(sentence.text)]
        names = [match[0] for match in NAME.finditer(sentence.text)]
        if not figures and not names:
            continue
        if not sentence.citations:
            what = ", ".join([*figures, *names])
            yield Objection(1.2, "uncited", f"A claim of fact ({what}) has no citation.", sentence.text)
            continue
        cited = " ".join(texts.get(number, "") for number in sentence.citations)
        absent = [fact for fact in [*figures, *names] if fact not in cited]
        if texts and absent:
            yield Objection(
                1.5,
                "citation_mismatch",
                f"The cited passage does not say {', '.join(absent)}.",
                sentence.text,
            )


def research_rigor(draft: Draft, passages: list[dict[str, Any]]) -> Iterator[Objection]:
    """How much is cited, from how many sources, whether quotes are true and sums add up."""
    sentences = draft.all_sentences
    bare = [sentence for sentence in sentences if not sentence.citations]
    if bare:
        share = 1 - len(bare) / len(sentences)
        points = round(min(5.0, 6 * (1 - share)), 1)
        yield Objection(
            points, "uncited", f"{len(bare)} of {len(sentences)} sentences have no citation.", bare[0].text
        )
    sources = {str(passage.get("source_id", passage["n"])): passage["n"] for passage in passages}
    cited = {number for sentence in sentences for number in sentence.citations}
    distinct = len(
        {key for key in sources if any(_source(passages, n) == key for n in cited)} if passages else cited
    )
    if distinct < 3 and len(sentences) > 4:
        yield Objection(
            1.0 * (3 - distinct), "few_sources", f"All rests on {distinct} source(s); use three or more."
        )
    texts = {int(passage["n"]): plain(passage["quote"]) for passage in passages}
    for sentence in sentences:
        if texts and sentence.citations and not supported(sentence, texts):
            yield Objection(
                0.8, "citation_mismatch", "The cited passage does not hold this sentence.", sentence.text
            )
        for wrong in wrong_sums(sentence.text):
            yield Objection(2.0, "wrong_sum", wrong, sentence.text)


def _source(passages: list[dict[str, Any]], number: int) -> str | None:
    return next((str(p.get("source_id", p["n"])) for p in passages if int(p["n"]) == number), None)


CRITICS: dict[str, Callable[[Draft, list[dict[str, Any]]], Iterator[Objection]]] = {
    "structure": structure,
    "voice": voice,
    "ethics": ethics,
    "shareability": shareability,
    "legal_accuracy": legal_accuracy,
    "research_rigor": research_rigor,
}


def critique(name: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Input ``draft``, optional ``passages`` (default: the draft's references).

    Output ``{"critic", "score": 0.0 to 10.0, "findings": [finding with "points"]}``.
    """
    draft = parse_draft(payload["draft"])
    passages = parse_passages(payload.get("passages") or draft.references)
    objections = list(CRITICS[name](draft, passages))
    score = max(0.0, FULL_MARKS - sum(objection.points for objection in objections))
    return {
        "critic": name,
        "score": round(score, 1),
        "findings": [objection.to_record() for objection in objections],
    }

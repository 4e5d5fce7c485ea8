"""One page: what the stages made of a brief, and its HTML."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .markup import inline, plain, printable
from .packages import UnknownDocumentError, installed_version
from .reference import CONFIG_PATH, metric_at, setting_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from .reference import Metric, Setting


class PageError(ValueError):
    """Results that do not make a page; the text names the stage and what is missing."""


@dataclass(frozen=True)
class StageRecord:
    """One run of one stage, for the box that says how the page was made."""

    stage: str
    started_at: datetime
    """Aware UTC."""
    finished_at: datetime | None
    """``None`` for the stage that is publishing just now."""
    trigger_latency: float | None = None
    """Seconds from the predecessor's completion to the start; ``None`` for the entry stage."""
    note: str = ""
    """What is worth saying about it, for example "sent back to write"."""


@dataclass(frozen=True)
class Citation:
    """One passage that the page leans on."""

    path: str
    line_start: int
    line_end: int
    quote: str


@dataclass(frozen=True)
class Sentence:
    """One sentence with the numbers of its citations, from 1, in the page's own order."""

    text: str
    citations: tuple[int, ...]
    subject: str = ""
    """What the sentence is about: a setting, a metric, a class or its parameter."""
    labelled: bool = False
    """Show the subject in front: neither the heading, nor the sentence before, nor this one names it."""


@dataclass(frozen=True)
class Section:
    """A heading with its sentences."""

    heading: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Page:
    """Everything that a published page shows, except when it was published."""

    key: str
    title: str
    question: str
    audience: str
    tags: tuple[str, ...]
    summary: tuple[Sentence, ...]
    sections: tuple[Section, ...]
    citations: tuple[Citation, ...]
    """Only those that a sentence refers to, in the order in which they first appear."""
    cover_svg: str
    cover_alt: str
    meta_description: str
    reading_time_minutes: int
    stages: tuple[StageRecord, ...] = field(default=())

    @property
    def digest(self) -> str:
        """Changes exactly when the page's content changes."""
        record = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(record.encode("utf-8", "surrogatepass")).hexdigest()


def build_page(
    item: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]], stages: Iterable[StageRecord] = ()
) -> Page:
    """Put a page together from an item's payload and its stages' results.

    :param item: the payload, see `content.briefs.Brief.as_payload`.
    :param results: result by stage: ``research``, ``write``, ``art_direction`` and ``publish`` are used.
    :param stages: the runs behind the page, in time order.

    Raises `PageError` when a result is missing, when a draft is empty, and when a sentence cites a passage
    that research did not find.
    """
    passages = _result(results, "research", "passages")["passages"]
    written = _result(results, "write", "sections")
    art = _result(results, "art_direction", "svg")
    publishing = _result(results, "publish", "meta_description")
    draft = publishing.get("draft") or written
    numbers = _Numbers(passages)
    return Page(
        key=str(item["key"]),
        title=str(draft.get("title") or item["title"]),
        question=str(item["question"]),
        audience=str(item.get("audience", "")),
        tags=tuple(item.get("tags", ())),
        summary=numbers.sentences("", draft.get("summary", ())),
        sections=tuple(
            Section(section["heading"], numbers.sentences(section["heading"], section["sentences"]))
            for section in draft["sections"]
        ),
        citations=numbers.citations,
        cover_svg=str(art["svg"]),
        cover_alt=str(art.get("alt") or ""),
        meta_description=str(publishing["meta_description"]),
        reading_time_minutes=int(publishing.get("reading_minutes") or 1),
        stages=tuple(stages),
    )


def render_page(page: Page, *, stem: str, published_at: datetime, updated_at: datetime) -> str:
    """The page as one HTML document; its cover is the file ``<stem>.svg`` beside it."""
    return render(
        "page.html",
        page=page,
        stem=stem,
        published_at=published_at,
        updated_at=updated_at,
        settings=_cited(setting_at, page.citations),
        metrics=_cited(metric_at, page.citations),
        config_path=CONFIG_PATH,
        versions=_versions(page.citations),
        backlinks=_backlinks(page),
    )


def render(template: str, **values: Any) -> str:
    """Fill one of the templates; every value is escaped unless it is Markup."""
    return _environment().get_template(template).render(**values) + "\n"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only publishing needs it

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        inline=_inline,
        plain=plain,
        printable=printable,
        day=_day,
        moment=_moment,
        duration=duration,
        points=_points,
        date=_iso,
    )
    return environment


def _result(results: Mapping[str, Mapping[str, Any]], stage: str, name: str) -> Mapping[str, Any]:
    result = results.get(stage)
    if not result or not result.get(name):
        raise PageError(f"stage {stage!r} left no {name!r}; run it again before publishing")
    return result


class _Numbers:
    """Numbers the cited passages in the order in which a reader meets them, and leaves out the others."""

    def __init__(self, passages: Sequence[Mapping[str, Any]]) -> None:
        self._passages = passages
        self._order: dict[int, int] = {}

    @property
    def citations(self) -> tuple[Citation, ...]:
        cited = [self._passages[number - 1] for number in self._order]
        return tuple(Citation(c["path"], int(c["line"]), int(c["end_line"]), c["quote"]) for c in cited)

    def sentences(self, heading: str, drafted: Sequence[Mapping[str, Any]]) -> tuple[Sentence, ...]:
        """The sentences of one section; each that changes the subject names the new one."""
        found = []
        before = heading
        for sentence in drafted:
            about = self._subject(sentence)
            named = about in {"", before} or _short_name(about) in sentence["text"]
            numbers = tuple(self._number(number) for number in sentence["citations"])
            found.append(Sentence(sentence["text"], numbers, about, labelled=not named))
            before = about or before
        return tuple(found)

    def _number(self, number: int) -> int:
        if not 1 <= number <= len(self._passages):
            raise PageError(f"the draft cites passage {number}, but research found {len(self._passages)}")
        return self._order.setdefault(number, len(self._order) + 1)

    def _subject(self, sentence: Mapping[str, Any]) -> str:
        for number in sentence["citations"][:1]:
            if 1 <= number <= len(self._passages):
                return str(self._passages[number - 1].get("title", ""))
        return ""


def _short_name(title: str) -> str:
    """The last part of a name, which a sentence may use alone: ``parallelism`` of ``[core] parallelism``."""
    return (title.partition("] ")[2] or title).rstrip(")").rpartition("(")[2]


def _points(sentences: Sequence[Sentence]) -> list[list[tuple[int, Sentence]]]:
    """The sentences, numbered from 1, cut where the subject changes."""
    points: list[list[tuple[int, Sentence]]] = []
    for number, sentence in enumerate(sentences, start=1):
        if not points or sentence.subject != points[-1][-1][1].subject:
            points.append([])
        points[-1].append((number, sentence))
    return points


def _cited(find: Any, citations: Sequence[Citation]) -> list[tuple[Setting | Metric, int]]:
    """The settings (or metrics) that the citations stand in, each with the number of its first citation."""
    found: dict[Setting | Metric, int] = {}
    for number, citation in enumerate(citations, start=1):
        entry = find(citation.path, citation.line_start)
        if entry is not None:
            found.setdefault(entry, number)
    return list(found.items())


def _versions(citations: Sequence[Citation]) -> list[str]:
    """The packages behind the citations as ``name version``."""
    return [f"{name} {_version(name)}" for name in sorted({c.path.split("/")[0] for c in citations})]


def _version(name: str) -> str:
    try:
        return installed_version(name)
    except UnknownDocumentError:
        return "(not installed here)"


def _backlinks(page: Page) -> dict[int, list[str]]:
    """For each citation the ids of the references to it, as the template names them; 0 is the summary."""
    links: dict[int, list[str]] = {}
    for s, sentences in enumerate([page.summary, *(section.sentences for section in page.sections)]):
        for n, sentence in enumerate(sentences, start=1):
            for number in sentence.citations:
                links.setdefault(number, []).append(f"ref-{s}-{n}-{number}")
    return links


def duration(seconds: float | None) -> str:
    """A span of time for people: ``0.4 s``, ``42 s``, ``3 min 05 s``, ``2 h 10 min``; a dash for none."""
    if seconds is None:
        return "\N{EN DASH}"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _inline(text: str) -> Markup:
    return inline(" ".join(text.split()))


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%d %B %Y}".lstrip("0")


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%H:%M:%S}"


def _iso(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds")

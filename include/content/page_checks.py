"""Check a published page: every sentence is cited, and every citation stands in the installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from .citations import verify_citation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a page."""

    page: Path
    what: str
    """What is wrong, for people."""

    def __str__(self) -> str:
        return f"{self.page}: {self.what}"


def check_site(output: Path) -> list[Problem]:
    """The problems of all pages under an output folder; a folder without pages is a problem too."""
    pages = sorted((output / "pages").glob("*.html"))
    if not pages:
        return [Problem(output, "no page is published here")]
    return [problem for page in pages for problem in check_page(page)]


def check_page(path: Path) -> list[Problem]:
    """The problems of one page, read from its HTML alone; an empty list when there are none.

    Checked: there are sentences, each refers to at least one source, each reference leads to a source
    of the page, each source is used, each quote and each setting's default stands in the cited lines of the
    installed file, and the cover is there.
    """
    if not path.is_file():
        return [Problem(path, "there is no such page")]
    reader = _PageReader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return [Problem(path, what) for what in _problems(reader, path)]


def _problems(reader: _PageReader, path: Path) -> Iterable[str]:
    if not reader.sentences:
        yield "the page has no sentences"
    for sentence in reader.sentences:
        if not sentence.references:
            yield f"no source for the sentence {sentence.text.strip()[:80]!r}"
    used = {reference for sentence in reader.sentences for reference in sentence.references}
    for missing in sorted(used - reader.sources.keys()):
        yield f"a reference leads to {missing!r}, which is not on the page"
    for name, source in reader.sources.items():
        if name not in used:
            yield f"{name} is listed, but no sentence refers to it"
        yield from _source_problems(name, source)
    for default in reader.defaults:
        yield from _source_problems("a default", default)
    for picture in reader.pictures or [""]:
        if not picture or not (path.parent / picture).is_file():
            yield f"the cover {picture!r} is missing"


def _source_problems(name: str, source: _Source) -> Iterable[str]:
    if not (source.line_start.isdecimal() and source.line_end.isdecimal()):
        yield f"{name} names no lines"
        return
    check = verify_citation(source.path, int(source.line_start), int(source.line_end), source.quote)
    if not check:
        yield f"{name}: {check.reason}"


@dataclass
class _Sentence:
    text: str
    references: list[str]


@dataclass
class _Source:
    path: str
    line_start: str
    line_end: str
    quote: str = ""


class _PageReader(HTMLParser):
    """Collects sentences with their references, sources with their quotes, and pictures."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sentences: list[_Sentence] = []
        self.sources: dict[str, _Source] = {}
        self.defaults: list[_Source] = []
        self.pictures: list[str] = []
        self._sentence: _Sentence | None = None
        self._source: _Source | None = None
        self._in_quote = False
        self._in_reference = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "span" and values.get("class") == "sentence":
            self._sentence = _Sentence("", [])
            self.sentences.append(self._sentence)
        elif tag == "sup":
            self._in_reference = True
        elif tag == "a" and self._sentence is not None and values.get("href", "").startswith("#source-"):
            self._sentence.references.append(values["href"][1:])
        elif tag == "li" and "data-path" in values:
            lines = (values.get("data-line-start", ""), values.get("data-line-end", ""))
            self._source = self.sources[values.get("id", "")] = _Source(values["data-path"], *lines)
        elif tag == "td" and "data-cited" in values:
            line = values.get("data-line", "")
            self.defaults.append(_Source(values["data-cited"], line, line, values.get("data-quote", "")))
        elif tag == "blockquote":
            self._in_quote = True
        elif tag == "img":
            self.pictures.append(values.get("src", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "span":
            self._sentence = None
        elif tag == "sup":
            self._in_reference = False
        elif tag == "blockquote":
            self._in_quote = False
        elif tag == "li":
            self._source = None

    def handle_data(self, data: str) -> None:
        if self._in_quote and self._source is not None:
            self._source.quote += data
        elif self._sentence is not None and not self._in_reference:
            self._sentence.text += data

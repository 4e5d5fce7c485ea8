"""The published folder: pages, their covers and records, the index page and the RSS feed.

::

    index.html  feed.xml
    pages/<stem>.html   the page
    pages/<stem>.svg    its cover
    pages/<stem>.json   its record; index and feed are made from these, so they can always be made again
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from .covers import safe_svg
from .files import locked, write_atomically
from .markup import plain, printable
from .names import file_stem
from .pages import Page, render, render_page

if TYPE_CHECKING:
    from pathlib import Path

    from .settings import ContentSettings

SITE_TITLE = "Running Airflow"
SITE_DESCRIPTION = (
    "Short answers about running Apache Airflow, each sentence cited from the installed packages."
)
FEED_LENGTH = 50
_PAGES = "pages"
_ATOM = "http://www.w3.org/2005/Atom"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """Where a page went."""

    page: Path
    cover: Path
    index: Path
    feed: Path
    changed: bool
    """False when the same page was there already; nothing of it was written then."""


@dataclass(frozen=True)
class Record:
    """What index and feed know of a page; stored as ``pages/<stem>.json``."""

    key: str
    stem: str
    title: str
    question: str
    description: str
    tags: tuple[str, ...]
    cover_alt: str
    reading_time_minutes: int
    published_at: datetime
    """When the key was first published; kept when the page changes."""
    updated_at: datetime
    digest: str

    @property
    def guid(self) -> str:
        """The feed entry's identity: depends on the item's key alone."""
        digest = hashlib.sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()
        return f"urn:relay:content:{digest[:32]}"

    def as_json(self) -> str:
        """The record as it is stored."""
        values = {
            **vars(self),
            "tags": list(self.tags),
            "published_at": self.published_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
        }
        return json.dumps(values, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a stored record. Raises ValueError, KeyError or TypeError for anything else."""
        values = json.loads(text)
        times = {name: datetime.fromisoformat(values[name]) for name in ("published_at", "updated_at")}
        return cls(**{**values, "tags": tuple(values["tags"]), **times})


def publish(page: Page, settings: ContentSettings, *, now: datetime) -> Published:
    """Write a page, its cover and record, then index and feed anew.

    Safe to repeat: the same page at any later time leaves every byte as it is. Safe beside other publishers:
    one at a time holds the folder's lock. ``now`` is an aware datetime.

    Raises `content.covers.CoverError` for a cover that must not be published and `content.files.OutputError`
    for an output folder that leads elsewhere.
    """
    cover = safe_svg(printable(page.cover_svg))
    root, stem, digest = settings.output, file_stem(page.key), page.digest
    with locked(root):
        before = _read_record(root / _PAGES / f"{stem}.json")
        published_at = before.published_at if before else now
        changed = before is None or before.digest != digest or not (root / _PAGES / f"{stem}.html").is_file()
        if changed:
            html = render_page(page, stem=stem, published_at=published_at, updated_at=now)
            write_atomically(root, f"{_PAGES}/{stem}.svg", cover)
            write_atomically(root, f"{_PAGES}/{stem}.html", html)
            record = _record(page, stem=stem, digest=digest, published_at=published_at, updated_at=now)
            write_atomically(root, f"{_PAGES}/{stem}.json", record.as_json())
        index, feed = _write_overview(settings)
    pages = root / _PAGES
    return Published(pages / f"{stem}.html", pages / f"{stem}.svg", index, feed, changed)


def rebuild(settings: ContentSettings) -> list[Record]:
    """Make index and feed anew from the records, for example after a page was removed by hand."""
    with locked(settings.output):
        _write_overview(settings)
        return read_records(settings.output)


def read_records(root: Path) -> list[Record]:
    """The records of all published pages, newest first. An unreadable one is logged and left out."""
    found = [_read_record(file) for file in sorted((root / _PAGES).glob("*.json"))]
    whole = [r for r in found if r is not None and (root / _PAGES / f"{r.stem}.html").is_file()]
    return sorted(whole, key=lambda record: (record.published_at, record.key), reverse=True)


def _record(page: Page, *, stem: str, digest: str, published_at: datetime, updated_at: datetime) -> Record:
    return Record(
        key=page.key,
        stem=stem,
        title=plain(page.title),
        question=page.question,
        description=plain(page.meta_description),
        tags=page.tags,
        cover_alt=page.cover_alt,
        reading_time_minutes=page.reading_time_minutes,
        published_at=published_at,
        updated_at=updated_at,
        digest=digest,
    )


def _read_record(file: Path) -> Record | None:
    if not file.is_file():
        return None
    try:
        record = Record.from_json(file.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is no record of a page (%s); publish the page again to replace it", file, error)
        return None
    if record.stem != file.stem:
        log.warning("%s is the record of %s; it is left out", file, record.stem)
        return None
    return record


def _write_overview(settings: ContentSettings) -> tuple[Path, Path]:
    records = read_records(settings.output)
    html = render("index.html", title=SITE_TITLE, description=SITE_DESCRIPTION, records=records)
    index = write_atomically(settings.output, "index.html", html)
    return index, write_atomically(
        settings.output, "feed.xml", _feed(records[:FEED_LENGTH], settings.base_url)
    )


def _feed(records: list[Record], base_url: str) -> str:
    """RSS 2.0. Its dates come from the records alone, so that the same pages give the same bytes."""
    ET.register_namespace("atom", _ATOM)
    rss = ET.Element("rss", {"version": "2.0"})
    channel = ET.SubElement(rss, "channel")
    _add(channel, "title", SITE_TITLE)
    _add(channel, "link", f"{base_url}/index.html")
    _add(channel, "description", SITE_DESCRIPTION)
    _add(channel, "language", "en")
    address = {"href": f"{base_url}/feed.xml", "rel": "self", "type": "application/rss+xml"}
    ET.SubElement(channel, f"{{{_ATOM}}}link", address)
    if records:
        _add(channel, "lastBuildDate", format_datetime(max(record.updated_at for record in records)))
    for record in records:
        entry = ET.SubElement(channel, "item")
        _add(entry, "title", record.title)
        _add(entry, "link", f"{base_url}/{_PAGES}/{record.stem}.html")
        _add(entry, "description", f"{record.question} {record.description}")
        for tag in record.tags:
            _add(entry, "category", tag)
        _add(entry, "guid", record.guid, isPermaLink="false")
        _add(entry, "pubDate", format_datetime(record.published_at))
    ET.indent(rss)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(rss, encoding="unicode") + "\n"


def _add(parent: ET.Element, name: str, text: str, **attributes: Any) -> None:
    ET.SubElement(parent, name, attributes).text = printable(text)

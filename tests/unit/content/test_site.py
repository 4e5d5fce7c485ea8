from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from content.covers import CoverError
from content.files import OutputError, locked, write_atomically
from content.page_checks import check_site
from content.settings import content_settings
from content.site import publish, read_records, rebuild

HOSTILE = [
    "../../../etc/passwd",
    "/abs",
    "index",
    "..",
    "a\x00b",
    "feed.xml",
    "naïve ключ",
    "x" * 200,
    "<b>&",
    "\ud800",
]


def tree(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def links(index):
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag == "a":
                found.append(dict(attrs)["href"])

    Reader().feed(index.read_text(encoding="utf-8"))
    return {link for link in found if link.startswith("pages/")}


def test_publishing_writes_page_cover_record_index_and_feed(page, output, now):
    done = publish(page, output, now=now)
    names = {name for name in tree(output.output) if name != ".lock"}
    assert names == {"pages/queued.html", "pages/queued.svg", "pages/queued.json", "index.html", "feed.xml"}
    assert done.changed
    assert all(file.is_file() for file in (done.page, done.cover, done.index, done.feed))
    assert links(done.index) == {"pages/queued.html"}


def test_publishing_the_same_page_again_changes_no_byte(page, output, now):
    publish(page, output, now=now)
    before = tree(output.output)
    again = publish(page, output, now=now + timedelta(hours=5))
    assert not again.changed
    assert tree(output.output) == before


def test_a_changed_page_keeps_its_guid_and_first_date(page, output, now):
    publish(page, output, now=now)
    first = entries(output.output / "feed.xml")[0]
    changed = replace(page, title="Another title")
    assert publish(changed, output, now=now + timedelta(days=1)).changed
    (second,) = entries(output.output / "feed.xml")
    assert second["title"] == "Another title"
    assert (second["guid"], second["pubDate"]) == (first["guid"], first["pubDate"])
    assert "updated" in (output.output / "pages/queued.html").read_text(encoding="utf-8")


def entries(feed):
    channel = ET.parse(feed).getroot().find("channel")
    return [{child.tag: child.text for child in entry} for entry in channel.findall("item")]


def test_the_feed_is_rss_2_with_all_that_readers_need(page, output, now):
    for number in range(3):
        one = replace(page, key=f"k{number}", title=f"<b>{number}</b> & more")
        publish(one, output, now=now + timedelta(minutes=number))
    root = ET.parse(output.output / "feed.xml").getroot()
    channel = root.find("channel")
    assert (root.tag, root.get("version")) == ("rss", "2.0")
    assert all(channel.findtext(name) for name in ("title", "link", "description", "lastBuildDate"))
    found = entries(output.output / "feed.xml")
    assert [e["title"] for e in found] == ["<b>2</b> & more", "<b>1</b> & more", "<b>0</b> & more"]
    assert len({e["guid"] for e in found}) == 3
    assert found[0]["link"] == f"{output.base_url}/pages/k2.html"
    assert parsedate_to_datetime(found[0]["pubDate"]) == now + timedelta(minutes=2)
    assert {g.get("isPermaLink") for g in root.iter("guid")} == {"false"}


def test_hostile_keys_stay_in_the_folder_and_apart(page, output, now, tmp_path):
    for key in HOSTILE:
        publish(replace(page, key=key), output, now=now)
    outside = [f for f in tmp_path.rglob("*") if f.is_file() and not f.is_relative_to(output.output)]
    assert outside == []
    assert len(list((output.output / "pages").glob("*.html"))) == len(HOSTILE)
    assert {r.key for r in read_records(output.output)} == set(HOSTILE)
    assert len(entries(output.output / "feed.xml")) == len(HOSTILE)
    assert len(links(output.output / "index.html")) == len(HOSTILE)


def test_a_folder_that_leads_elsewhere_is_refused(page, output, now, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    output.output.mkdir()
    (output.output / "pages").symlink_to(elsewhere)
    with pytest.raises(OutputError, match="outside"):
        publish(page, output, now=now)
    assert list(elsewhere.iterdir()) == []


def test_a_path_that_climbs_out_is_refused(tmp_path):
    root = tmp_path / "root"
    with locked(root), pytest.raises(OutputError, match="nothing was written"):
        write_atomically(root, "../x.html", "x")
    assert not (tmp_path / "x.html").exists()


def test_an_output_folder_that_is_a_file_is_named(page, output, now):
    output.output.write_text("in the way")
    with pytest.raises(OutputError, match="is a file"):
        publish(page, output, now=now)


def test_a_link_in_place_of_a_page_is_replaced_and_not_followed(page, output, now, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (output.output / "pages").mkdir(parents=True)
    (output.output / "pages" / "queued.html").symlink_to(victim)
    publish(page, output, now=now)
    assert victim.read_text() == "untouched"
    assert check_site(output.output) == []


def test_an_unsafe_cover_publishes_nothing(page, output, now):
    with pytest.raises(CoverError):
        publish(replace(page, cover_svg="<svg><script/></svg>"), output, now=now)
    assert not output.output.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": "a"}', '{"published_at": 1}'])
def test_a_broken_record_is_left_out_and_repaired_by_publishing_again(page, output, now, text):
    publish(page, output, now=now)
    publish(replace(page, key="other"), output, now=now)
    record = output.output / "pages" / "queued.json"
    record.write_text(text)
    assert [r.key for r in rebuild(output)] == ["other"]
    assert len(entries(output.output / "feed.xml")) == 1
    assert publish(page, output, now=now).changed
    assert {r.key for r in read_records(output.output)} == {"queued", "other"}


def test_a_page_removed_by_hand_leaves_index_and_feed(page, output, now):
    publish(page, output, now=now)
    (output.output / "pages" / "queued.html").unlink()
    assert rebuild(output) == []
    assert links(output.output / "index.html") == set()


def test_an_empty_site_has_a_valid_feed_and_index(output):
    assert rebuild(output) == []
    assert entries(output.output / "feed.xml") == []
    assert "Nothing is published yet" in (output.output / "index.html").read_text(encoding="utf-8")


PUBLISHER = """
import json, pickle, sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from content.settings import content_settings
from content.site import publish
page = pickle.loads(bytes.fromhex(sys.argv[1]))
first, last = int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    now = datetime.now(timezone.utc)
    publish(replace(page, key=f"own-{first}-{number}"), content_settings(), now=now)
    publish(replace(page, key="shared", title=f"From {first}, {number}"), content_settings(), now=now)
    print(number, flush=True)
"""


def start_publisher(page, output, include, first, last):
    import pickle

    environment = {**os.environ, "PYTHONPATH": str(include), "RELAY_CONTENT_OUTPUT": str(output.output)}
    command = [sys.executable, "-c", PUBLISHER, pickle.dumps(page).hex(), str(first), str(last)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_publishers_in_several_processes_lose_no_page_and_break_no_file(page, output, include):
    publishers = [start_publisher(page, output, include, first, first + 8) for first in (0, 100, 200, 300)]
    assert [publisher.wait(timeout=120) for publisher in publishers] == [0, 0, 0, 0]
    for publisher in publishers:
        publisher.stdout.close()
    assert len(read_records(output.output)) == 4 * 8 + 1
    assert len(links(output.output / "index.html")) == 4 * 8 + 1
    assert len(entries(output.output / "feed.xml")) == 4 * 8 + 1
    assert check_site(output.output) == []
    shared = json.loads((output.output / "pages" / "shared.json").read_text())
    assert f"<h1>{shared['title']}</h1>" in (output.output / "pages" / "shared.html").read_text(
        encoding="utf-8"
    )
    assert list(output.output.rglob("*.tmp")) == []


def test_a_killed_publisher_leaves_whole_files_and_no_lock(page, output, include, now):
    publisher = start_publisher(page, output, include, 0, 10_000)
    for _ in range(3):
        assert publisher.stdout.readline()
    publisher.kill()
    publisher.wait(timeout=60)
    publisher.stdout.close()
    for file in (output.output / "pages").glob("*.html"):
        assert file.read_text(encoding="utf-8").endswith("</html>\n")
    (output.output / "pages" / ".writing-left.tmp").write_text("half a pa")
    publish(page, output, now=now)
    assert list(output.output.rglob("*.tmp")) == []
    assert check_site(output.output) == []
    assert "queued" in {record.key for record in read_records(output.output)}


def test_the_output_folder_is_looked_up_when_asked(monkeypatch, tmp_path):
    monkeypatch.delenv("RELAY_CONTENT_OUTPUT", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    assert content_settings().output == tmp_path / "home" / "published"
    monkeypatch.setenv("RELAY_CONTENT_OUTPUT", str(tmp_path / "with a space"))
    assert content_settings().output == tmp_path / "with a space"
    assert content_settings().base_url.endswith("/with%20a%20space")
    monkeypatch.setenv("RELAY_CONTENT_BASE_URL", "https://example.org/pages/")
    assert content_settings().base_url == "https://example.org/pages"

from __future__ import annotations

import json

import pytest
from content.briefs import BriefError, read_brief, read_briefs
from content.settings import content_settings

GOOD = "---\ntitle: T\nquestion: Q?\naudience: all\ntags: [a]\nterms: [b c]\n---\nBackground.\n"


def test_the_eight_shipped_briefs_are_read_in_the_order_of_their_keys():
    briefs = read_briefs(content_settings().briefs)
    assert [b.key for b in briefs] == [
        "concurrency-limits",
        "dag-file-changes",
        "human-approval",
        "lost-worker",
        "scheduler-falling-behind",
        "stuck-in-queued",
        "triggerer-capacity",
        "worker-gone",
    ]
    assert all(b.question.endswith("?") and b.background for b in briefs)


def test_a_payload_is_json_and_holds_the_whole_brief():
    brief = read_briefs(content_settings().briefs)[0]
    payload = json.loads(json.dumps(brief.as_payload()))
    assert payload["key"] == brief.key
    assert payload["terms"] == list(brief.terms)
    assert payload["background"] == brief.background


def test_priority_and_background_may_be_left_out(tmp_path):
    file = tmp_path / "a b.md"
    file.write_text(GOOD.replace("Background.\n", ""))
    brief = read_brief(file)
    assert (brief.key, brief.priority, brief.background) == ("a b", 0, "")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (GOOD.replace("question: Q?\n", ""), "question"),
        (GOOD.replace("title: T", "title: ''"), "title"),
        (GOOD.replace("audience: all", "audience: [x]"), "audience"),
        (GOOD.replace("tags: [a]", "tags: a"), "tags"),
        (GOOD.replace("terms: [b c]", "terms: [1]"), "terms"),
        (GOOD.replace("terms: [b c]", "terms: []"), "terms"),
        (GOOD.replace("tags: [a]", "tags: [a]\npriority: high"), "priority"),
        (GOOD.replace("tags: [a]", "tags: [a]\npriority: 101"), "priority"),
        (GOOD.replace("tags: [a]", "tags: [a]\npriority: true"), "priority"),
        (GOOD.replace("tags: [a]", "tags: [a]\nterm: [x]"), "term"),
    ],
)
def test_an_error_names_file_and_field(tmp_path, text, field):
    file = tmp_path / "wrong.md"
    file.write_text(text)
    with pytest.raises(BriefError) as error:
        read_briefs(tmp_path)
    assert str(file) in str(error.value)
    assert repr(field) in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "no front matter", "---\ntitle: T\n", "---\n- a\n---\n", "---\na: [\n---\n"]
)
def test_a_brief_without_readable_front_matter_is_refused(tmp_path, text):
    file = tmp_path / "wrong.md"
    file.write_text(text)
    with pytest.raises(BriefError, match="front matter"):
        read_brief(file)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BriefError, match="nowhere"):
        read_briefs(tmp_path / "nowhere")

from __future__ import annotations

import re

import pytest
from content.page_checks import check_page, check_site
from content.pages import PageError, build_page, duration
from content.site import publish

ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


@pytest.fixture
def published(page, output, now):
    return publish(page, output, now=now).page


def change(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def problems(file):
    return "\n".join(problem.what for problem in check_page(file))


def test_citations_are_numbered_in_the_order_of_reading_and_unused_ones_left_out(page, results):
    passages = results["research"]["passages"]
    assert [c.line_start for c in page.citations] == [passages[1]["line"], passages[0]["line"]]
    assert [s.citations for s in page.sections[0].sentences] == [(1,), (1, 2)]


def test_a_sentence_is_labelled_when_nothing_before_it_names_its_subject(page):
    assert [s.labelled for s in page.summary] == [True]
    assert [s.labelled for s in page.sections[0].sentences] == [True, False]
    assert page.summary[0].subject == "[scheduler] task_queued_timeout"


def test_a_sentence_under_its_own_heading_or_with_its_own_name_needs_no_label(item, results):
    section = results["write"]["sections"][0]
    section["heading"] = "[scheduler] task_queued_timeout"
    assert not build_page(item, results).sections[0].sentences[0].labelled
    section["heading"] = "Other"
    section["sentences"][0]["text"] = "The setting task_queued_timeout limits it."
    assert not build_page(item, results).sections[0].sentences[0].labelled


def test_the_polished_draft_is_what_is_published(item, results):
    results["publish"]["draft"] = {**results["write"], "title": "Polished"}
    assert build_page(item, results).title == "Polished"
    del results["publish"]["draft"]
    assert build_page(item, results).title == "Tasks that stay queued"


def test_a_published_page_has_no_problems(published, output):
    assert check_page(published) == []
    assert check_site(output.output) == []


def test_a_page_shows_sources_settings_cover_and_how_it_was_made(published):
    text = published.read_text(encoding="utf-8")
    assert '<img src="queued.svg" alt="A dark rectangle"' in text
    assert "config.yml:" in text
    assert "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT" in text
    assert "sent back once" in text
    assert "<code>[core] parallelism</code>" in text
    assert re.search(r"<td>write.*?0\.4 s</td>\s*<td[^>]*>1 min 00 s</td>", text, re.DOTALL)
    assert "this stage" in text


def test_markup_in_any_field_is_shown_and_not_run(item, results, output, now):
    for field in ("title", "question", "audience"):
        item[field] = ATTACK
    item |= {"key": ATTACK, "tags": [ATTACK]}
    draft = results["write"]
    draft["title"] = ATTACK
    draft["summary"][0]["text"] = ATTACK
    draft["sections"][0]["heading"] = ATTACK
    draft["sections"][0]["sentences"][0]["text"] = (
        ATTACK + f" ``{ATTACK}`` **{ATTACK}** `x <https://a/{ATTACK}>`__"
    )
    results["publish"]["meta_description"] = ATTACK
    results["art_direction"]["alt"] = ATTACK
    for name in ("quote", "path", "title"):
        results["research"]["passages"][0][name] = ATTACK
    done = publish(build_page(item, results), output, now=now)
    for file in (done.page, done.index, done.feed):
        text = file.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "<img src=x" not in text
        assert "alert(1)" in text


def test_a_link_that_is_no_web_address_stays_text(item, results, output, now):
    results["write"]["summary"][0]["text"] = "See `here <javascript:alert(1)>`__."
    text = publish(build_page(item, results), output, now=now).page.read_text(encoding="utf-8")
    assert 'href="javascript' not in text


@pytest.mark.parametrize("stage", ["research", "write", "art_direction", "publish"])
def test_a_missing_result_is_named(item, results, stage):
    del results[stage]
    with pytest.raises(PageError, match=stage):
        build_page(item, results)


@pytest.mark.parametrize("number", [0, 4, -1])
def test_a_citation_of_no_passage_is_refused(item, results, number):
    results["write"]["sections"][0]["sentences"][0]["citations"] = [number]
    with pytest.raises(PageError, match="research found 3"):
        build_page(item, results)


def test_a_changed_quote_is_found(published):
    change(published, "<blockquote>Amount of time", "<blockquote>Amount of money")
    assert "does not say" in problems(published)


def test_a_changed_line_is_found(published):
    text = published.read_text(encoding="utf-8")
    line = re.search(r'data-line-start="(\d+)"', text)[1]
    change(
        published, f'data-line-start="{line}" data-line-end="{line}"', 'data-line-start="1" data-line-end="2"'
    )
    assert "does not say" in problems(published)


def test_a_line_that_is_no_number_is_found(published):
    change(published, 'data-line-start="', 'data-line-start="x')
    assert "names no lines" in problems(published)


def test_a_file_that_is_not_installed_is_found(published):
    change(published, 'data-path="apache-airflow-core/airflow/', 'data-path="apache-airflow-core/airflow/no/')
    assert "has no file" in problems(published)


def test_a_default_that_the_installed_reference_does_not_have_is_found(published):
    change(published, 'data-quote="default: &#34;600.0&#34;"', 'data-quote="default: 601"')
    assert "a default" in problems(published)


def test_a_sentence_without_a_source_is_found(item, results, output, now):
    results["write"]["sections"][0]["sentences"].append({"text": "Trust me.", "citations": []})
    file = publish(build_page(item, results), output, now=now).page
    assert problems(file) == "no source for the sentence 'Trust me.'"


def test_a_reference_to_nowhere_is_found(published):
    change(published, 'href="#source-2"', 'href="#source-9"')
    assert "'source-9', which is not on the page" in problems(published)
    assert "source-2 is listed" in problems(published)


def test_a_missing_cover_is_found(published):
    published.with_suffix(".svg").unlink()
    assert "cover" in problems(published)


def test_a_page_without_sentences_and_a_missing_page_are_problems(tmp_path):
    empty = tmp_path / "empty.html"
    empty.write_text("<p>nothing</p>")
    assert "no sentences" in problems(empty)
    assert "no such page" in problems(tmp_path / "none.html")
    assert check_site(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text

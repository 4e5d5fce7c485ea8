"""All shipped briefs through all six jobs of the deterministic backend, without Airflow."""

from __future__ import annotations

import json

import pytest
from content import payloads
from content.briefs import read_briefs
from content.page_checks import check_page, check_site
from content.pages import build_page
from content.settings import ContentSettings, content_settings
from content.site import publish, read_records

from airflow_relay.local_agent.extractive.backend import ExtractiveBackend

BACKEND = ExtractiveBackend()


def job(name, payload):
    text = json.dumps(payload)
    return BACKEND.run(name, BACKEND.prepare(name, text), {}).data


def draft(item):
    """Research, write, review, and write again if it is sent back; the results and the verdicts."""
    results = {"research": job("research", payloads.research_payload(item))}
    verdicts = []
    while not verdicts or (verdicts[-1] != "ok" and len(verdicts) < 2):
        results["write"] = job("write", payloads.write_payload(item, results))
        results["self_review"] = job("self_review", payloads.self_review_payload(results))
        verdicts.append(results["self_review"]["verdict"])
    return results, verdicts


@pytest.fixture(scope="module")
def drafted():
    briefs = sorted(read_briefs(content_settings().briefs), key=lambda brief: -brief.priority)
    return {brief.key: (brief.as_payload(), *draft(brief.as_payload())) for brief in briefs}


@pytest.fixture(scope="module")
def site(drafted, tmp_path_factory):
    """Publish everything that is no duplicate of what was published before it."""
    from datetime import datetime, timezone

    folder = tmp_path_factory.mktemp("published")
    settings = ContentSettings(folder, content_settings().briefs, folder.as_uri())
    passed, discarded = {}, {}
    for key, (item, results, _) in drafted.items():
        results["dedup_check"] = job("dedup_check", payloads.dedup_check_payload(results, passed.items()))
        if results["dedup_check"]["verdict"] == "duplicate":
            discarded[key] = results["dedup_check"]["nearest"]
            continue
        passed[key] = results["write"]
        results["art_direction"] = job("art_direction", payloads.art_direction_payload(results))
        results["publish"] = job("publish", payloads.publish_payload(results))
        now = datetime(2026, 5, 4, 7, len(passed), tzinfo=timezone.utc)
        publish(build_page(item, results), settings, now=now)
    return settings, discarded


def test_every_draft_is_accepted_and_at_least_one_only_after_it_was_sent_back_once(drafted):
    verdicts = {key: verdicts for key, (_, _, verdicts) in drafted.items()}
    assert all(found[-1] == "ok" for found in verdicts.values()), verdicts
    assert ["revise", "ok"] in verdicts.values(), verdicts


def test_exactly_one_of_the_two_near_duplicates_is_discarded(site):
    _, discarded = site
    assert discarded == {"worker-gone": "lost-worker"}


def test_every_published_page_is_true_to_the_installed_packages(site):
    settings, _ = site
    assert len(read_records(settings.output)) == 7
    assert [str(problem) for problem in check_site(settings.output)] == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("lost-worker", "task_instance_heartbeat_timeout</code> seconds, the scheduler will mark"),
        ("stuck-in-queued", "Amount of time a task can be in the queued state"),
        ("concurrency-limits", "maximum number of task instances that can run concurrently per scheduler"),
        ("dag-file-changes", "look for new files, in a DAG bundle"),
        ("human-approval", "wait for a user response"),
        ("triggerer-capacity", "How many triggers a single Triggerer will run at once"),
        ("scheduler-falling-behind", "Milliseconds spent running one scheduler loop"),
    ],
)
def test_each_page_answers_its_question(site, key, words):
    settings, _ = site
    page = settings.output / "pages" / f"{key}.html"
    assert check_page(page) == []
    assert words in page.read_text(encoding="utf-8")

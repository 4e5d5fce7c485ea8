"""The content package lives in include/, which a deployment puts on PYTHONPATH."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[3] / "include"
if str(INCLUDE) not in sys.path:
    sys.path.insert(0, str(INCLUDE))

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=timezone.utc)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 630"><rect width="1200" height="630"/></svg>'


def passage_of(section: str, option: str) -> dict:
    """The first line of an option's description, quoted as research would."""
    from content.reference import CONFIG_PATH, settings

    setting = next(s for s in settings() if (s.section, s.option) == (section, option))
    line = setting.description_line
    return {
        "source_id": f"{CONFIG_PATH}:{line}",
        "title": setting.name,
        "path": CONFIG_PATH,
        "line": line,
        "end_line": line,
        "quote": setting.description[0].strip(),
        "score": 1.0,
    }


@pytest.fixture
def include() -> Path:
    return INCLUDE


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def item() -> dict:
    return {
        "key": "queued",
        "title": "Tasks that stay queued",
        "question": "Why does a task stay queued?",
        "audience": "on-call engineers",
        "tags": ["queue"],
        "terms": ["task_queued_timeout"],
        "background": "Nothing starts.",
    }


@pytest.fixture
def results() -> dict:
    passages = [
        passage_of("core", "parallelism"),
        passage_of("scheduler", "task_queued_timeout"),
        passage_of("scheduler", "task_queued_timeout_check_interval"),
    ]
    summary = [{"text": "A queued task is given up after ten minutes.", "citations": [2]}]
    sentences = [
        {"text": "A task can be queued for a limited time.", "citations": [2]},
        {"text": "The scheduler looks for such tasks, see ``[core] parallelism``.", "citations": [2, 1]},
    ]
    draft = {
        "title": "Tasks that stay queued",
        "question": "Why does a task stay queued?",
        "summary": summary,
        "sections": [{"heading": "How long", "sentences": sentences}],
    }
    return {
        "research": {"passages": passages, "key_terms": ["queued"]},
        "write": draft,
        "self_review": {"verdict": "ok", "feedback": [], "readability": {"flesch_reading_ease": 60.0}},
        "dedup_check": {"verdict": "unique", "similarity": 0.1, "nearest": None},
        "art_direction": {"svg": SVG, "alt": "A dark rectangle"},
        "publish": {
            "draft": draft,
            "meta_description": "How long a task stays queued.",
            "reading_minutes": 1,
        },
    }


@pytest.fixture
def stages() -> list:
    from content.pages import StageRecord

    done = NOW - timedelta(minutes=1)
    return [
        StageRecord("research", NOW - timedelta(minutes=3), NOW - timedelta(minutes=2)),
        StageRecord("write", NOW - timedelta(minutes=2), done, trigger_latency=0.4, note="sent back once"),
        StageRecord("publish", done, None, trigger_latency=0.3),
    ]


@pytest.fixture
def page(item, results, stages):
    from content.pages import build_page

    return build_page(item, results, stages)


@pytest.fixture
def output(tmp_path):
    from content.settings import ContentSettings

    folder = tmp_path / "published pages"
    return ContentSettings(output=folder, briefs=INCLUDE / "content" / "briefs", base_url=folder.as_uri())

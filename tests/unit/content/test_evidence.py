from __future__ import annotations

import pytest
from content.evidence import as_evidence
from content.reference import CONFIG_PATH, METRICS_PATH, metrics, settings


def passage(quote, *, option="task_queued_timeout"):
    setting = next(s for s in settings() if s.option == option)
    return {
        "path": CONFIG_PATH,
        "line": setting.description_line,
        "end_line": setting.line_end,
        "quote": quote,
    }


@pytest.mark.parametrize(
    ("quote", "evidence"),
    [
        ("This defines the limit.", "The setting task_queued_timeout defines the limit."),
        ("This value also sets the life.", "The setting task_queued_timeout also sets the life."),
        ("Idle for this many seconds.", "Idle for task_queued_timeout seconds."),
        ("If this value is 0, it is off.", "If task_queued_timeout is 0, it is off."),
        ("Set this to 0 to disable it.", "Set task_queued_timeout to 0 to disable it."),
        ("Longer than this timeout.", "Longer than task_queued_timeout."),
        ("In this case nothing changes.", "In this case nothing changes."),
        ("Do this. This can wait.", "Do this. This can wait."),
    ],
)
def test_what_stands_for_a_setting_is_replaced_by_its_name(quote, evidence):
    assert as_evidence(passage(quote))["quote"] == evidence


def test_a_phrase_becomes_a_sentence():
    metric = metrics()[0]
    found = {
        "path": METRICS_PATH,
        "line": metric.passage.line,
        "end_line": metric.line_end,
        "quote": "number of this",
    }
    assert as_evidence(found)["quote"] == "Number of this."


def test_a_metric_and_its_qualifier_are_one_sentence():
    metric = next(m for m in metrics() if m.name == "executor.open_slots")
    found = {"path": METRICS_PATH, "line": metric.passage.line, "end_line": 0, "quote": metric.passage.text}
    assert as_evidence(found)["quote"].startswith("Number of open slots on executor; legacy metric only")


def test_only_the_quote_changes():
    before = passage("This defines the limit")
    after = as_evidence(before)
    assert before["quote"] == "This defines the limit"
    assert {**after, "quote": before["quote"]} == before

from __future__ import annotations

import copy
import json

import pytest
from content import payloads
from content.briefs import read_briefs
from content.citations import verify_citation
from content.settings import content_settings


def test_research_gets_question_brief_and_sources_that_can_be_cited():
    brief = read_briefs(content_settings().briefs)[0]
    payload = json.loads(json.dumps(payloads.research_payload(brief.as_payload(), limit=5)))
    assert payload["question"] == brief.question
    assert brief.background in payload["brief"]
    assert len(payload["sources"]) == 5
    for source in payload["sources"]:
        last = source["line"] + source["text"].count("\n")
        assert verify_citation(source["path"], source["line"], last, source["text"].split("\n")[0])


def test_a_first_draft_is_written_without_and_a_second_with_feedback_and_draft(item, results):
    del results["self_review"]
    assert payloads.write_payload(item, results).keys() == {"question", "title", "passages"}
    finding = {"code": "long_sentence", "message": "Cut it.", "sentence": "A task can be queued."}
    results["self_review"] = {"verdict": "revise", "feedback": [finding]}
    payload = payloads.write_payload(item, results)
    assert payload["feedback"] == [finding]
    assert payload["draft"] == results["write"]


def test_each_later_stage_gets_the_draft(results):
    draft = results["write"]
    assert payloads.self_review_payload(results)["draft"] == draft
    assert payloads.art_direction_payload(results) == {"draft": draft}
    assert payloads.publish_payload(results) == {"draft": draft}
    compared = payloads.dedup_check_payload(results, [("other", draft)])
    assert compared["draft"] == draft
    assert compared["others"] == [{"key": "other", "text": payloads.draft_text(draft)}]


def test_writer_and_reviewer_get_the_same_evidence(item, results):
    evidence = payloads.self_review_payload(results)["passages"]
    assert payloads.write_payload(item, results)["passages"] == evidence
    parallelism = results["research"]["passages"][0]
    assert parallelism["quote"].startswith("This defines the maximum number of task instances")
    assert evidence[0]["quote"].startswith(
        "The setting parallelism defines the maximum number of task instances"
    )
    assert {**evidence[0], "quote": ""} == {**parallelism, "quote": ""}


def test_building_a_payload_changes_no_result(item, results):
    before = copy.deepcopy(results)
    payloads.write_payload(item, results)
    payloads.self_review_payload(results)
    payloads.dedup_check_payload(results, [])
    assert results == before


def test_a_missing_result_names_both_stages(item):
    with pytest.raises(payloads.MissingResultError, match=r"'write'.*'research'"):
        payloads.write_payload(item, {})


def test_the_text_of_a_draft_holds_every_word_that_readers_see(results):
    text = payloads.draft_text(results["write"])
    assert text.splitlines() == [
        "Tasks that stay queued",
        "A queued task is given up after ten minutes.",
        "How long",
        "A task can be queued for a limited time.",
        "The scheduler looks for such tasks, see ``[core] parallelism``.",
    ]


@pytest.mark.parametrize("stage", payloads.STAGES)
def test_each_stage_has_instructions_that_name_its_answer(stage):
    text = payloads.instructions(stage)
    assert "Answer with one JSON object" in text


def test_instructions_for_an_unknown_stage_are_refused():
    with pytest.raises(ValueError, match="nope"):
        payloads.instructions("nope")

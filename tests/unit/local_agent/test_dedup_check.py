from __future__ import annotations

import pytest
from tests.support.agent_texts import QUESTION

from airflow_relay.local_agent.backends import InvalidInputError


def test_a_draft_is_its_own_duplicate(do, draft):
    result = do("dedup_check", draft=draft, others=[{"key": "same", "draft": draft}])
    assert (result["verdict"], result["similarity"], result["nearest"]) == ("duplicate", 1.0, "same")


def test_a_rewrite_of_the_same_passages_is_a_near_duplicate(do, draft, researched):
    rewritten = do(
        "write",
        question=QUESTION,
        passages=researched["passages"],
        feedback=[{"code": "other", "sentence": draft["summary"][0]["text"]}],
    )
    result = do("dedup_check", draft=rewritten, others=[{"key": "first", "draft": draft}])
    assert result["verdict"] == "duplicate"
    assert result["similarity"] < 1.0


def test_another_topic_from_the_same_documentation_is_unique(do, draft, sources):
    question = "How are logs of tasks stored remotely and which connection is used?"
    passages = do("research", question=question, sources=sources)["passages"]
    other = do("write", question=question, passages=passages)
    result = do("dedup_check", draft=other, others=[{"key": "limits", "draft": draft}])
    assert result["verdict"] == "unique"
    assert result["similarity"] < 0.3


def test_the_nearest_of_several_is_named(do, draft):
    others = [
        {"key": "far", "text": "Bananas are yellow and grow in bunches on large plants."},
        {"key": "near", "text": " ".join(sentence["text"] for sentence in draft["summary"])},
    ]
    assert do("dedup_check", draft=draft, others=others)["nearest"] == "near"


def test_the_threshold_decides(do):
    payload = {
        "draft": "The pool has a fixed number of slots for tasks.",
        "others": [{"key": "a", "text": "The pool has a fixed number of runs for people."}],
    }
    assert do("dedup_check", **payload, threshold=0.9)["verdict"] == "unique"
    assert do("dedup_check", **payload, threshold=0.4)["verdict"] == "duplicate"


def test_nothing_to_compare_with_is_unique(do, draft):
    result = do("dedup_check", draft=draft, others=[])
    assert (result["verdict"], result["nearest"], result["compared"]) == ("unique", None, 0)


@pytest.mark.parametrize(
    "change", [{"others": "x"}, {"others": [{"key": "a"}]}, {"others": [{"text": "a"}]}, {"threshold": 7}]
)
def test_unusable_input_is_refused(do, draft, change):
    with pytest.raises(InvalidInputError):
        do("dedup_check", **{"draft": draft, "others": [], **change})

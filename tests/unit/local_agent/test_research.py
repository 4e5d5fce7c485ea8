from __future__ import annotations

import pytest
from tests.support.agent_texts import QUESTION

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.passages import MAX_LINES, cut


def test_the_settings_that_answer_the_question_are_found(researched):
    found = {passage["source_id"] for passage in researched["passages"]}
    assert {"core.parallelism", "core.max_active_runs_per_dag", "core.max_active_tasks_per_dag"} <= found
    assert researched["coverage"] == 1.0


def test_every_quote_is_an_exact_piece_of_its_source_at_the_stated_lines(researched, sources):
    by_id = {source["id"]: source for source in sources}
    assert researched["passages"]
    for passage in researched["passages"]:
        source = by_id[passage["source_id"]]
        start = passage["line"] - source["line"]
        end = passage["end_line"] - source["line"] + 1
        assert passage["quote"] == "\n".join(source["text"].split("\n")[start:end])
        assert passage["path"] == source["path"]


def test_passages_are_numbered_in_the_order_of_their_score(researched):
    scores = [passage["score"] for passage in researched["passages"]]
    assert scores == sorted(scores, reverse=True)
    assert [passage["n"] for passage in researched["passages"]] == list(range(1, len(scores) + 1))


def test_key_terms_are_words_of_the_passages(researched):
    text = " ".join(passage["quote"] for passage in researched["passages"]).lower()
    assert len(researched["key_terms"]) == 10
    assert all(term in text for term in researched["key_terms"])


def test_the_same_input_gives_the_same_output(do, sources, researched):
    again = do("research", question=QUESTION, brief="max_active_runs, parallelism, pools", sources=sources)
    assert again == researched


def test_a_single_short_source_is_found(do):
    source = {"id": "a", "title": "A", "path": "a.md", "line": 7, "text": "Pools limit parallel tasks."}
    result = do("research", question="What do pools limit?", sources=[source])
    assert [(passage["line"], passage["quote"]) for passage in result["passages"]] == [(7, source["text"])]


def test_a_source_without_any_of_the_words_is_not_offered(do):
    source = {
        "id": "a",
        "title": "A",
        "path": "a.md",
        "line": 1,
        "text": "Bananas are yellow and rather sweet.",
    }
    other = {"id": "b", "title": "B", "path": "b.md", "line": 1, "text": "The scheduler examines the runs."}
    result = do("research", question="What does the scheduler examine?", sources=[source, other])
    assert [passage["source_id"] for passage in result["passages"]] == ["b"]


def test_nothing_found_is_an_empty_list_not_an_error(do):
    source = {"id": "a", "title": "A", "path": "a.md", "line": 1, "text": "Bananas are yellow."}
    result = do("research", question="kubernetes?", sources=[source])
    assert result["passages"] == []
    assert result["coverage"] == 0.0


def test_repeated_sources_are_offered_once(do):
    text = "The scheduler examines the runs that are queued in every loop."
    sources = [{"id": key, "title": "Same", "path": key, "line": 1, "text": text} for key in "abc"]
    assert (
        len(do("research", question="Which runs does the scheduler examine?", sources=sources)["passages"])
        == 1
    )


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "at least one source"),
        ("text", "must be a list"),
        ([{"id": "a"}], "source 1 has no 'text'"),
        ([{"id": "a", "text": "words", "line": "seven"}], "'line' of source 1"),
        ([{"id": "a", "text": "  \n "}], "no source has any text"),
    ],
)
def test_unusable_sources_are_refused_by_name(do, sources, message):
    with pytest.raises(InvalidInputError, match=message):
        do("research", question="What is a pool?", sources=sources)


def test_long_text_is_cut_into_passages_that_cover_every_line_of_text():
    text = "\n".join(f"Line number {n} of a very long block of text." for n in range(300))
    pieces = cut({"id": "a", "text": text, "line": 10}, position=1)
    assert "\n".join(piece.quote for piece in pieces) == text
    assert all(piece.end_line - piece.line < 2 * MAX_LINES for piece in pieces)
    assert pieces[0].line == 10
    assert pieces[-1].end_line == 309

from __future__ import annotations

from airflow_relay.local_agent.extractive.backend import SUMMARIZE, ExtractiveBackend
from airflow_relay.local_agent.extractive.summarize import LENGTH, summarize
from airflow_relay.local_agent.extractive.text import sentences

TEXT = (
    "A pool limits how many tasks run at once. Each task takes a slot of its pool. "
    "The weather was fine. A task waits when its pool has no free slot. Pools and slots limit tasks. "
    "My cat sleeps."
)


def test_it_takes_whole_sentences_of_the_text_in_their_order():
    chosen = sentences(summarize(TEXT))
    assert len(chosen) == LENGTH
    assert chosen == [s for s in sentences(TEXT) if s in chosen]


def test_what_has_nothing_to_do_with_the_rest_is_left_out():
    assert "cat" not in summarize(TEXT)
    assert "weather" not in summarize(TEXT)


def test_a_short_text_comes_back_as_it_is():
    assert summarize(" What is a pool? ") == "What is a pool?"


def test_the_backend_summarizes_what_names_no_job():
    backend = ExtractiveBackend()
    assert backend.default_job == SUMMARIZE
    result = backend.run(SUMMARIZE, backend.prepare(SUMMARIZE, TEXT), {})
    assert result.text == summarize(TEXT)
    assert result.data is None
    assert result.usage.output_tokens > 0

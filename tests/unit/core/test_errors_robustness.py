"""The classifier never raises, never stalls, leaks no secret, and knows kinds rather than single messages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_relay.core.errors import ErrorClass, classify, classify_line
from airflow_relay.core.errors.evidence import Evidence
from airflow_relay.core.errors.finishes import FIELD_RULES, FINISH_RULES
from airflow_relay.core.errors.loose import NotALiteralError, read_literal
from airflow_relay.core.errors.phrases import RULES as PHRASES
from airflow_relay.core.errors.reader import gather_value
from airflow_relay.core.errors.scrub import MAX_REASON, scrub
from airflow_relay.core.errors.words import RULES as WORDS

DATA = Path(__file__).parent / "data"
CORPUS = [
    json.loads(line)
    for name in ("agent_errors.jsonl", "more_agent_errors.jsonl")
    for line in (DATA / name).read_text(encoding="utf-8").splitlines()
]

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=40)
    | st.sampled_from(
        [
            "429",
            "rate_limit_error",
            "Error code: 400 - {'a': [",
            "data: {",
            "<html>",
            "retry after 9s",
            '{"error":',
        ]
    )
)
KEYS = st.text(max_size=12) | st.sampled_from(
    [
        "error",
        "code",
        "type",
        "status",
        "message",
        "details",
        "retry_after",
        "resets_at",
        "headers",
        "finish_reason",
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


def _check(verdict):
    assert isinstance(verdict.error_class, ErrorClass)
    assert verdict.retry_after is None or 0 <= verdict.retry_after <= 32 * 86400
    assert len(verdict.reason) <= MAX_REASON
    assert "\n" not in verdict.reason
    verdict.reason.encode("utf-8")


@settings(max_examples=300, deadline=None)
@given(status=JSON, headers=JSON, body=JSON, exception=JSON)
def test_any_json_gets_a_verdict(status, headers, body, exception):
    _check(classify(status, headers, body, exception))


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("{}[]()'\"\\:,=<>/ \n\tabE4290.-_"), max_size=300))
def test_any_broken_literal_gets_a_verdict(text):
    _check(classify(body=text))
    _check(classify(exception=text))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200), line=st.text(max_size=200))
def test_any_bytes_and_any_line_get_a_verdict(data, line):
    _check(classify(body=data))
    assert set(classify_line(line)) == {"error_class", "retryable", "retry_after", "reason"}


@settings(max_examples=150, deadline=None)
@given(payload=st.sampled_from(CORPUS), cut=st.floats(min_value=0.0, max_value=1.0))
def test_a_payload_that_a_logger_cut_off_gets_a_verdict(payload, cut):
    text = json.dumps(payload["body"])
    _check(classify(payload["status"], payload["headers"], text[: int(len(text) * cut)]))


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "1",
        "{",
        "[",
        "(",
        "{'a':",
        '{"error":{"message":"',
        "<div>",
        "<p",
        "data: {}\n",
        "\\",
        "rate ",
        "error ",
        "Error code: 429 - ",
        "token limit exceeded by the model ",
        "retry in ",
        "try again in 1m ",
        "limit 1 requested ",
        "api_key=",
        "sk-",
        "a.",
        "A_B",
        "429 ",
        "模型",
        "exceeds the very long input ",
        "you have reached your monthly spending usage ",
    ],
)
def test_a_huge_text_of_one_repeated_piece_is_read_quickly(unit):
    # A pattern that backtracks would run for hours on these; the suite's own time limit would end it.
    _check(classify(429, None, unit * (2_000_000 // len(unit))))
    _check(classify(exception=unit * 20_000))


def test_deep_nesting_and_wide_lists_are_read_without_recursion_errors():
    deep: object = "rate_limit_exceeded"
    for _ in range(5000):
        deep = {"error": [deep]}
    _check(classify(429, None, deep))
    _check(classify(429, None, '{"error":[' * 50_000))
    wide = [{"choices": [{"delta": {"content": "x"}}]} for _ in range(50_000)]
    wide.append({"error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert classify(200, None, wide).error_class is ErrorClass.OVERLOADED


def test_the_failure_at_the_end_of_a_long_stream_is_found():
    chunk = 'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
    stream = (
        chunk * 5000 + 'event: error\ndata: {"error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    assert classify(200, None, stream).error_class is ErrorClass.OVERLOADED


# --- kinds, not lines -----------------------------------------------------------------------------


def _prose(payload):
    found = Evidence()
    gather_value(found, payload["body"])
    gather_value(found, payload.get("exception"), key="exception")
    return found.prose()


def test_no_rule_matches_the_whole_text_of_a_payload():
    whole = []
    for payload in CORPUS:
        prose = _prose(payload)
        for rule in PHRASES:
            match = rule.pattern.search(prose)
            if match and len(prose) > 60 and len(match.group(0)) > 0.8 * len(prose):
                whole.append((payload["id"], match.group(0)))
    assert whole == []


def test_every_rule_cites_where_its_form_was_seen():
    field_rules = [rule for _, rule in FIELD_RULES]
    assert all(len(rule.seen) > 8 for rule in (*PHRASES, *WORDS, *FINISH_RULES, *field_rules))


def test_no_rule_repeats_without_a_bound():
    for rule in PHRASES:
        bare = re.sub(r"\[[^\]]*\]|\\.", "", rule.pattern.pattern)
        assert not re.search(r"[*+]|\{\d+,\}", bare), rule.pattern.pattern[:80]


# --- secrets --------------------------------------------------------------------------------------

SECRETS = [
    "sk-proj-abcDEF0123456789abcDEF0123456789",
    "sk-ant-api03-AbCdEf0123456789-AbCdEf0123456789",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "gsk_1234567890abcdefABCDEF1234567890",
    "hf_abcdefGHIJKL1234567890abcdef",
    "xai-1234567890abcdef1234567890",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_1234567890abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "0123456789abcdef0123456789abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: {}.",
        "Authorization: Bearer {}",
        "invalid x-api-key: {}",
        "{{'headers': {{'api-key': '{}'}}, 'error': 'bad key'}}",
        "connection to https://user:{}@host.example failed",
        "GET /v1/models?key={}&alt=sse failed",
    ],
)
def test_a_reason_holds_no_secret(text, secret):
    for verdict in (classify(401, None, text.format(secret)), classify(exception=text.format(secret))):
        assert secret not in verdict.reason
        assert secret[:16] not in verdict.reason


def test_a_password_in_a_url_or_a_pair_is_replaced():
    assert "hunter2x" not in scrub("postgresql://relay:hunter2x@db/ledger refused; password=hunter2x")


def test_a_reason_is_one_short_line():
    reason = classify(500, None, "first line\nsecond line\r\n" * 500).reason
    assert len(reason) <= MAX_REASON
    assert not re.search(r"[\r\n]", reason)


# --- the tolerant reader --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
        ("{'a': 'it\\'s', 'b': None, 'c': (1, 2)}", {"a": "it's", "b": None, "c": [1, 2]}),
        ("{ status: 429, code: 'x', }", {"status": 429, "code": "x"}),
        ("{'body': b'{\"m\": 1}'}", {"body": '{"m": 1}'}),
        ('{"a": {"b": "cut o', {"a": {"b": "cut o"}}),
        ("retry_delay {\n  seconds: 36\n}"[12:], {"seconds": 36}),
        ("{'url': URL('https://x'), 'n': 1}", {"url": {"URL": ["https://x"]}, "n": 1}),
        ('{"u": "\\u00e9\\n"}', {"u": "é\n"}),
        ("{\"a\"=>1, 'b' => 'c'}", {"a": 1, "b": "c"}),
    ],
)
def test_literals_of_several_languages_are_read(text, value):
    assert read_literal(text, 0)[0] == value


@pytest.mark.parametrize("text", ["{see the docs}", "{messages} are missing", "{" * 100])
def test_prose_in_braces_is_no_literal(text):
    with pytest.raises(NotALiteralError):
        read_literal(text, 0)

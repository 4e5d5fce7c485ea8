"""How long the classifier says to wait: headers, fields and words, and what is no hint."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_relay.core.errors import classify

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "120"}, 0.12),
        ({"x-ms-retry-after-ms": "2500", "retry-after": "9"}, 2.5),
        ({"retry-after": "7m12s"}, 432),
        ({"Retry-After": "Fri, 02 Jan 2026 03:05:05 GMT"}, 60),
        ({"Retry-After": "Fri, 02 Jan 2026 03:05:05 GMT", "Date": "Fri, 02 Jan 2026 03:05:00 GMT"}, 5),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, 1),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-reset": "1767323105"}, 60),
        ({"x-ratelimit-reset": "1767323105000"}, 60),
        ({"ratelimit-reset": "17"}, 17),
        ({"anthropic-ratelimit-tokens-reset": "2026-01-02T03:04:35Z"}, 30),
        ({b"retry-after": [b"4"]}, 4),
    ],
)
def test_headers_that_ask_to_wait(headers, seconds):
    assert classify(429, headers, now=NOW).retry_after == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["-1", "nan", "inf", "1e400", "99999999999999", "soon", "", "Fri, 02 Jan 1970 03:05:05 GMT"]
)
def test_headers_that_are_no_hint(value):
    assert classify(429, {"retry-after": value}, now=NOW).retry_after is None


def test_a_date_without_any_clock_is_no_hint():
    assert classify(429, {"retry-after": "Fri, 02 Jan 2026 03:05:05 GMT"}).retry_after is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 7m12s.", 432),
        ("Please retry in 28.2s.", 28.2),
        ("try again in 20 seconds", 20),
        ("Try again in 3 minutes", 180),
        ("try again in 1h2m3.5s", 3723.5),
        ("retry after 120ms", 0.12),
        ("Please wait 60 seconds before retrying", 60),
        ("Retry-After: 12", 12),
        ("resets in 2 hours and 5 minutes", 7500),
        ("available again in about 45 secs", 45),
        ("请 30 秒后重试", 30),
        ("try again in a minute", 60),
    ],
)
def test_waits_in_words(text, seconds):
    assert classify(429, None, {"error": {"message": f"Rate limit. {text}"}}).retry_after == pytest.approx(
        seconds
    )


@pytest.mark.parametrize(
    "text",
    [
        "Request timed out after 20 seconds",
        "litellm retried: 2 times, timeout value=20.0, time taken=20.26 seconds",
        "API version 2023-05-15, error 429",
        "Retrying in 8 seconds",
    ],
)
def test_times_in_words_that_are_no_wait(text):
    assert classify(429, None, text).retry_after is None


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"error": {"details": [{"@type": "…/google.rpc.RetryInfo", "retryDelay": "26.5s"}]}}, 26.5),
        ({"error": {"details": [{"retryDelay": {"seconds": 9}}]}}, 9),
        ({"error": "loading", "estimated_time": 20.0}, 20),
        ({"error": {"retry_after": 5}}, 5),
        ({"error": {"retry_after_ms": 250}}, 0.25),
        ({"error": {"resets_in_seconds": 90}}, 90),
        ({"error": {"resets_at": 1767323105}}, 60),
        ({"$metadata": {"totalRetryDelay": 787}}, None),
    ],
)
def test_fields_that_ask_to_wait(body, seconds):
    found = classify(429, None, body, now=NOW).retry_after
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_buckets_speak_only_of_limits():
    headers = {"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}
    assert classify(429, headers).retry_after == 360
    assert classify(500, headers).retry_after is None


def test_of_several_buckets_the_empty_one_counts():
    headers = {
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "8s",
    }
    assert classify(429, headers).retry_after == 8


def test_a_hint_that_can_never_help_is_none():
    too_large = "Limit 6000, Requested 14810. Please try again in 12s."
    assert classify(429, None, too_large).retry_after is None
    assert classify(400, {"retry-after": "5"}, {"error": {"code": "content_filter"}}).retry_after is None

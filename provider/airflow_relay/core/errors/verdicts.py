"""Weighs the evidence of a failed call and gives the verdict; also line by line, for the command line."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from airflow_relay.core.errors.evidence import Evidence, gather_headers, snake
from airflow_relay.core.errors.exceptions import gather_exception
from airflow_relay.core.errors.hints import wait_hint
from airflow_relay.core.errors.limits import limit_signals
from airflow_relay.core.errors.phrases import phrase_signals
from airflow_relay.core.errors.reader import gather_value
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.core.errors.signals import DECISIVE, SPECIFIC, STATUS, Signal, heaviest
from airflow_relay.core.errors.statuses import http_signal, number_signals
from airflow_relay.core.errors.taxonomy import HINTED, ErrorClass, Verdict
from airflow_relay.core.errors.words import token_signal, word_signals

MAX_LINE = 4_000_000
"""Characters of one input line of `classify_line`."""

_LIMITED = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.QUOTA_EXHAUSTED, ErrorClass.OVERLOADED})
_ERROR_HEADERS = (
    "x-amzn-errortype",
    "x-ms-error-code",
    "x-error-code",
    "x-error-type",
    "x-error",
    "error-code",
    "x-ratelimit-type",
    "x-deny-reason",
)
"""Headers whose value is a machine word: AWS, Azure, GitHub Models and gateways."""
_FILTER_FLAGS = frozenset(
    {
        "filtered",
        "flagged",
        "blocked",
        "is_blocked",
        "is_flagged",
        "moderated",
        "content_filtered",
        "nsfw",
        "has_nsfw_concepts",
        "nsfw_content_detected",
    }
)
"""Fields that are true when a filter struck: Azure content_filter_results, fal, moderation endpoints."""


def classify(
    status: Any = None,
    headers: Any = None,
    body: Any = None,
    exception: Any = None,
    *,
    now: datetime | None = None,
) -> Verdict:
    """The class of a failed agent or LLM call, whatever the provider's dialect.

    Give what there is. `status`: HTTP status of the reply (int or digits). `headers`: mapping or list of
    pairs. `body`: decoded JSON, text or bytes. `exception`: an exception object, its text, or
    `{"type", "message"}`. `now` (aware) serves dates in hints when the reply has no Date header.

    Replies with status 200 that are failures are told by their finish reasons, states and error events; a
    reply without any sign of failure is `unknown`. Never raises.
    """
    found = Evidence()
    outer = _status(status)
    gather_headers(found, headers or {})
    gather_value(found, body)
    if isinstance(exception, BaseException):
        gather_exception(found, exception)
    else:
        gather_value(found, exception, key="exception")
    prose = found.prose()
    signals = _signals(found, prose, outer, now)
    winner = heaviest(signals)
    error_class = winner.error_class if winner else ErrorClass.UNKNOWN
    wait = wait_hint(found, now=now, limited=error_class in _LIMITED) if error_class in HINTED else None
    raised = type(exception).__name__ if isinstance(exception, BaseException) else ""
    return Verdict(error_class, wait, _reason(winner, found, raised))


def _status(status: Any) -> int | None:
    if isinstance(status, bool):
        return None
    try:
        number = int(str(getattr(status, "value", status)).strip()[:10])
    except ValueError:
        return None
    return number if 100 <= number <= 999 else None


def _signals(found: Evidence, prose: str, outer: int | None, now: datetime | None) -> list[Signal]:
    http = http_signal(found, outer)
    wait = wait_hint(found, now=now, limited=True)
    return [
        *word_signals(found.tokens),
        *number_signals(found),
        *phrase_signals(prose),
        *http,
        *limit_signals(found, prose, outer, wait),
        *_header_signals(found),
        *_flag_signals(found),
    ]


def _header_signals(found: Evidence) -> list[Signal]:
    signals = []
    for name in _ERROR_HEADERS:
        value = found.headers.get(name, "").split(":", 1)[0]
        signal = token_signal(name, snake(value), raw=value) if value else None
        if signal is not None:
            signals.append(signal)
    if found.headers.get("cf-mitigated"):
        signals.append(Signal(ErrorClass.AUTH, SPECIFIC, 0, "header cf-mitigated"))
    return signals


def _flag_signals(found: Evidence) -> list[Signal]:
    signals = []
    if "challenge_page" in found.flags:
        signals.append(Signal(ErrorClass.AUTH, STATUS + 1, 0, "a challenge page of the proxy"))
    raised = sorted(found.flags & _FILTER_FLAGS)
    if raised:
        signals.append(Signal(ErrorClass.CONTENT_POLICY, DECISIVE - 5, 0, f"flag {raised[0]}"))
    return signals


def _reason(winner: Signal | None, found: Evidence, raised: str) -> str:
    words = found.texts[-1] if found.texts else ""
    if winner is None and raised:  # an error in somebody's own code: there was no reply that could tell more
        return scrub(f"{raised}: {words}")
    told = f"told by {winner.why}" if winner else "nothing in the reply tells why"
    return scrub(told + (f"; said: {words}" if words else ""))


def classify_line(json_line: str, now: datetime | None = None) -> dict[str, Any]:
    """The verdict on one JSON line `{status, headers, body, exception}`, as a dict for JSON output.

    Keys: `error_class`, `retryable`, `retry_after` (seconds or None), `reason`. A line that cannot be read
    gives the same shape with class `unknown` and a reason that names the line's problem. Never raises.
    """
    try:
        record = json.loads(json_line[:MAX_LINE])
    except (ValueError, TypeError, RecursionError) as problem:
        return _as_dict(Verdict(ErrorClass.UNKNOWN, None, scrub(f"unreadable line: not JSON ({problem})")))
    if not isinstance(record, dict):
        kind = type(record).__name__
        return _as_dict(
            Verdict(ErrorClass.UNKNOWN, None, f"unreadable line: a JSON object is needed, not {kind}")
        )
    given = {name: record.get(name) for name in ("status", "headers", "body", "exception")}
    if not any(value is not None for value in given.values()):
        return _as_dict(
            Verdict(
                ErrorClass.UNKNOWN, None, "unreadable line: none of status, headers, body, exception is given"
            )
        )
    return _as_dict(classify(**given, now=now))


def _as_dict(verdict: Verdict) -> dict[str, Any]:
    return {
        "error_class": verdict.error_class.value,
        "retryable": verdict.retryable,
        "retry_after": verdict.retry_after,
        "reason": verdict.reason,
    }

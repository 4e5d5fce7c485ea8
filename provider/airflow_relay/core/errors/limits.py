"""Tells limits apart: one that frees itself, one that money or a long window ends, one below the request.

All three come as 429 "rate limit exceeded" from one provider or another.
"""

from __future__ import annotations

import re

from airflow_relay.core.errors.evidence import Evidence
from airflow_relay.core.errors.signals import DECISIVE, PLAIN, SPECIFIC, Signal
from airflow_relay.core.errors.taxonomy import ErrorClass as C

SOON = 3600.0
"""Seconds: a limit that says it frees itself within this is a rate limit, whatever its window is called."""
LONG = 4 * 3600.0
"""Seconds: a limit that asks to wait longer is a used-up quota."""

_LIMIT_AND_REQUEST = re.compile(r"limit:? (\d{1,12})\b.{0,60}?requested:? (\d{1,12})\b")
_LIMIT_ZERO = re.compile(r"\b(?:limit|quota)(?:_?value)?['\"]?\s?[:=]\s?['\"]?0\b(?![.\d])")
_LONG_WINDOW = re.compile(
    r"(?:per|/|a|each|by|this) ?-?(?:day|week|month|日|天|月)\b|\b(?:daily|weekly|monthly)\b|per-day"
    r"|\b(?:tpd|rpd)\b|每(?:天|日|月)|当日|今日"
)
_LIMIT_WORDS = re.compile(r"limit|quota|alloc|used up|too many|exceed|reached|allow|用量|额度|次数|上限")
_ROLLING = re.compile(r"rate[- ]limit (?:reached|exceeded)|on (?:tokens|requests) per")
_QUOTA_PROSE = re.compile(
    r"exceeded your current quota|quota exceeded|insufficient_quota|exceeded .{0,30}quota|quota"
)
_SHORT_WINDOW_WORDS = re.compile(
    r"(?:per|/|a|each)[ _]?(?:minute|second|min|sec)\b|per_(?:minute|second)_|每(?:分钟|秒)"
)
_MONEY_OR_LONG = re.compile(
    r"balance|credit|billing|budget|spend|payment|recharge|per[ _-]?day|daily|monthly|per[ _-]?month"
    r"|limit:? 0\b|余额|充值"
)
_SHORT_WINDOW = re.compile(r"per_?(?:minute|second)")


def limit_signals(found: Evidence, prose: str, status: int | None, wait: float | None) -> list[Signal]:
    """The signals that need the window, the wait and the sizes together."""
    signals = []
    sizes = _LIMIT_AND_REQUEST.search(prose)
    if sizes and int(sizes[2]) > int(sizes[1]):
        signals.append(
            Signal(C.CONTEXT_LENGTH, DECISIVE + 3, 0, f"requested {sizes[2]} of a limit of {sizes[1]}")
        )
    codes = {token.word for token in found.tokens}
    if _LIMIT_ZERO.search(prose) and _LIMIT_WORDS.search(prose):
        signals.append(Signal(C.QUOTA_EXHAUSTED, DECISIVE + 2, 0, "a limit of 0"))
    if "insufficient_quota" not in codes and not any(_SHORT_WINDOW.search(code) for code in codes):
        signals += _window_signals(prose, status, wait)
    if wait is not None and wait > LONG and _is_limited(found, status):
        signals.append(Signal(C.QUOTA_EXHAUSTED, SPECIFIC - 4, 0, f"a wait of {wait:g} s"))
    return signals


def _window_signals(prose: str, status: int | None, wait: float | None) -> list[Signal]:
    if _SHORT_WINDOW_WORDS.search(prose) and _QUOTA_PROSE.search(prose) and not _MONEY_OR_LONG.search(prose):
        return [Signal(C.RATE_LIMIT, SPECIFIC + 3, 0, "a quota per minute or second")]
    soon = wait is not None and wait <= SOON
    if _LONG_WINDOW.search(prose) and _LIMIT_WORDS.search(prose):
        if soon and _ROLLING.search(prose):
            return [Signal(C.RATE_LIMIT, SPECIFIC + 5, 0, f"a rolling window, free again in {wait:g} s")]
        return [Signal(C.QUOTA_EXHAUSTED, PLAIN + 8, 0, "a limit per day or longer")]
    if soon and _QUOTA_PROSE.search(prose) and status in (None, 429) and "billing_" not in prose:
        return [Signal(C.RATE_LIMIT, SPECIFIC + 3, 0, f"a quota that is free again in {wait:g} s")]
    return []


def _is_limited(found: Evidence, status: int | None) -> bool:
    return status == 429 or any(inner == 429 for _, inner in found.statuses)

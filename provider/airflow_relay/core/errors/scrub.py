"""Keeps secrets out of everything that is derived from a server's words."""

from __future__ import annotations

import re

MAX_REASON = 300
"""Characters of a verdict's reason."""

_SECRETS = (
    # name = value pairs: api_key=…, "x-api-key": "…", token: …, password=…
    re.compile(
        r"(?i)\b([\w-]{0,20}(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?key|auth[_-]?token|access[_-]?token"
        r"|session[_-]?token|client[_-]?secret|signature)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)[^\s\"',;&}]{4,400}"
    ),
    re.compile(r"(?i)\b((?:bearer|basic|token|authorization)[\s:=]{1,3})[A-Za-z0-9._~+/=-]{8,4000}"),
    re.compile(r"()\beyJ[A-Za-z0-9_-]{6,2000}(?:\.[A-Za-z0-9_-]{1,4000}){0,2}"),
    re.compile(
        r"()\b(?:sk|pk|rk|gsk|hf|xai|r8|ghp|gho|ghs|github_pat|glpat|fw|nvapi|pplx|csk|AIza|ya29|AKIA|ASIA"
        r"|xox[abprs]|sess|dapi|tgp_v1|esecret)[-_.]?(?=[A-Za-z0-9_*.-]{0,200}[0-9*])[A-Za-z0-9_*.-]{12,400}"
    ),
    re.compile(r"()(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"),
    re.compile(r"()\b(?=[A-Za-z]{0,200}[0-9])[A-Za-z0-9+_-]{32,4000}={0,2}"),
)
_CONTROL = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029]+")


def scrub(text: str, limit: int = MAX_REASON) -> str:
    """`text` as one line of at most `limit` characters, with keys, tokens and passwords replaced by ***."""
    line = _CONTROL.sub(" ", text[: limit * 10]).strip()
    line = line.encode("utf-8", "replace").decode("utf-8")
    for pattern in _SECRETS:
        line = pattern.sub(r"\1***", line)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"

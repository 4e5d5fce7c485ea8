"""Opens whatever came back: nested objects, bodies inside texts, event streams, HTML and XML pages, prose."""

from __future__ import annotations

import html
import json
import math
import re
from typing import Any

from airflow_relay.core.errors.evidence import Evidence, Number, gather_headers, snake
from airflow_relay.core.errors.loose import NotALiteralError, read_literal

MAX_NODES = 4000
"""Values looked at in one reply; a failure stands near the top or the end, not in value 4001."""
MAX_DEPTH = 24
MAX_ITEMS = 60
"""Entries looked at on each side of a long list (an event stream ends with its failure)."""

CODE_KEY = re.compile(
    r"(?:^|_)(?:codes?|type|status|reasons?|class|category|kind|state|limit_source|source|action|errors?|exceptions?"
    r"|title|finish|stop|fault|event|outcome|result|quota_?(?:id|metric|limit)|issue|detail|msg|message|cause)$"
)
"""Fields whose value is a machine word about the failure."""

TEXT_KEY = re.compile(
    r"(?:^|_)(?:message|msg|detail|details|description|title|errors?|reasons?|explanation|hint|raw|cause|text"
    r"|exception|body|data|response|content|parts?|summary|refusal|info|value|stderr|logs?|fallback|headline)$"
)

FINISH_KEY = re.compile(
    r"(?:^|_)(?:finish|stop|incomplete|done|block|completion|termination|filtered?)_?"
    r"(?:details_|sequence_)?(?:reason|status|type)"
)

BLOCK_KEY = re.compile(r"(?:block|filter(?:ed)?|rejection)_?reasons?(?:_message)?$")
"""Fields that are there only when something was blocked, whatever they say."""

_OWN_WORDS = frozenset(
    [
        "messages",
        "prompt",
        "prompts",
        "input",
        "inputs",
        "instructions",
        "tools",
        "model",
        "models",
        "system",
        "user",
        "flagged_input",
        "documentation_url",
        "help_url",
        "url",
        "upgrade_url",
        "request_id",
        "requestid",
        "trace_id",
        "id",
        "name_of_model",
        "traceback_lines",
        "links",
        "usage",
        "metadata_url",
        "previous_response_id",
        "authorization",
        "api_key",
        "x_api_key",
        "cookie",
        "set_cookie",
        "user_agent",
        "object",
        "timestamp",
        "date",
    ]
)
"""Fields that repeat the caller's own words or are noise; a prompt about rate limits is no rate limit."""

_MODEL_OUTPUT = frozenset(
    [
        "choices",
        "candidates",
        "output",
        "outputs",
        "artifacts",
        "history",
        "content_block",
        "generations",
        "predictions",
        "results",
        "artifact",
    ]
)
"""Fields that hold what a model wrote: only their machine words and refusal parts count, not their prose."""

_STATUS_KEY = re.compile(
    r"(?:^|_)(?:status|code|status_?code|http_?status(?:_?code)?|error_?code|err_?code|http_?code|error_status)$"
)

MAX_TEXT = 24_000
"""Characters read of one text: the first two thirds and the last third."""
MAX_LITERALS = 40
MAX_IDENTIFIERS = 300

_WORD = re.compile(r"[^\s{}\[\]<>\"'()=,;]{1,120}")
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z+.-]{1,12}://[^\s\"'<>)\]}]{1,2000}")
_SSE_LINE = re.compile(r"^\s{0,4}(event|data|id|retry)\s?:\s?(.{0,60000})$", re.MULTILINE)
_HTML = re.compile(r"(?i)<(?:!doctype\s|html|head|body|title|h1|div|center|p>|pre|script|meta\s)")
_XML_FIELD = re.compile(
    r"<(\w{0,20}(?:code|type|status|reason|message|fault|Code|Type|Status|Message|Reason))>([^<>]{1,300})</"
)
_SILENT = re.compile(r"(?is)<(script|style|svg)\b.{0,20000}?(?:</\1\s*>|\Z)")
_TAG = re.compile(r"<[^<>]{0,2000}>?")
_CF_CLASS = re.compile(r"cf-error(?:-details|-code)?[\s-]{1,3}(?:cf-error-)?(\d{3,4})")
_JSON_RPC_TEXT = re.compile(r"(?<![\w-])-32\d{3}\b")
_CF_TEXT = re.compile(r"(?i)\berror(?: code)?:?\s{1,3}(1\d{3})\b")
_IDENTIFIER = re.compile(
    r"[A-Za-z][A-Za-z0-9]{0,60}(?:[._-][A-Za-z0-9]{1,60}){1,8}"
    r"|[A-Za-z]{0,30}[a-z0-9][A-Z][A-Za-z0-9]{1,60}|[A-Z]{2,8}[a-z][A-Za-z0-9]{2,60}|\b[A-Z]{5,40}\b"
    r"|\b[A-Z][a-z]{2,20}(?:Error|Exception|Timeout)\b|\bTimeout\b(?=:)"
)

_PHRASES = (
    "bad request|unauthorized|payment required|forbidden|not found|method not allowed|request time-?out"
    "|conflict|payload too large|unprocessable|too many requests|internal server error|bad gateway"
    "|service unavailable|gone|service temporarily unavailable|gateway time-?out|client closed request"
    "|request entity too large"
    "|rate limit|status code"
)
_TEXT_STATUSES = (
    re.compile(
        r"(?i)\b(?:error[ _-]?code|status[ _-]?code|http[ _-]?status|http[ _-]?error"
        r"|httpstatuscode|http(?:/\d(?:\.\d)?)?|code|status"
        r"|response|error|returned|returns|answered|replied|gave|got|received|failed with|replied with"
        r"|exception|unexpected)[\"']?\s?(?:[:=(\[<#-]|\bis\b|\bof\b)?\s?[\"'<\[(]?"
        r"([45]\d\d)(?![\d%]|\.\d|\s?(?:ms|s|sec|tok|char|px|byte|kb|mb|min|request|max))"
    ),
    re.compile(
        r"^[\W_]{0,6}(?:\w{1,20}:? )?([45]\d\d)(?=[\s:,;\]\)}<-]|$)"
        r"(?!\s?(?:ms|tok|char|px|byte|kb|mb|min|request|max))"
    ),
    re.compile(r"[\[(]\s?([45]\d\d)(?:\s[A-Za-z][A-Za-z -]{1,40})?\s?[\])]"),
    re.compile(r":\s?([45]\d\d)(?:\s?[):]|\s(?=[A-Z{`\"'<]))"),
    re.compile(r"(?i)\b([45]\d\d)[\s:,-]{1,3}(?:" + _PHRASES + r")"),
)


def gather_value(
    found: Evidence, value: Any, *, key: str = "", parent: str = "", depth: int = 0, prose: bool = True
) -> None:
    """Adds what `value` says to `found`. `prose` is off inside what a model wrote."""
    found.nodes += 1
    if depth > MAX_DEPTH or found.nodes > MAX_NODES:
        return
    if isinstance(value, dict):
        _gather_mapping(found, value, key, depth, prose)
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = list(value)
        if len(items) > 2 * MAX_ITEMS:
            items = items[:MAX_ITEMS] + items[-MAX_ITEMS:]
        for item in items:
            gather_value(found, item, key=key, parent=parent, depth=depth + 1, prose=prose)
    elif isinstance(value, (str, bytes, bytearray)):
        text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
        _gather_string(found, text, key, parent, depth, prose=prose)
    elif value is True:
        found.flags.add(key)
    elif isinstance(value, (int, float)) and value is not False:
        _gather_number(found, value, key, parent, depth)


def _gather_mapping(found: Evidence, value: dict[Any, Any], parent: str, depth: int, prose: bool) -> None:
    for raw_key, inner in list(value.items())[: 2 * MAX_ITEMS]:
        key = snake(str(raw_key)[:200])
        if key in _OWN_WORDS:
            continue
        if parent.endswith("_details") and key in (
            "reason",
            "type",
        ):  # incomplete_details.reason, stop_details.type
            key = f"{parent}_{key}"
        if key.endswith("headers") and isinstance(inner, (dict, list)):
            gather_headers(found, inner)
            continue
        if key == "seconds" and _WAIT_KEY.search(parent):
            found.hints.append((parent, inner))
        if _WAIT_KEY.search(key) and not isinstance(inner, (dict, list)):
            found.hints.append((key, inner))
        gather_value(
            found,
            inner,
            key=key,
            parent=parent,
            depth=depth + 1,
            prose=prose and not _is_model_output(key, inner),
        )


_WAIT_KEY = re.compile(
    r"retry_?(?:after|delay|in)|resets?_?(?:in|at|after|time|seconds)|(?:^|_)wait(?:_|$)|estimated_time"
    r"|backoff|cool_?down|^reset$"
)


def _is_model_output(key: str, inner: Any) -> bool:
    if key == "content":
        return isinstance(inner, list)
    return key in _MODEL_OUTPUT and isinstance(inner, (list, dict))


def _gather_number(found: Evidence, value: float, key: str, parent: str, depth: int) -> None:
    if not _STATUS_KEY.search(key) or not math.isfinite(value) or abs(value) > 1e9 or value != int(value):
        return
    number = int(value)
    if 400 <= number <= 599:
        found.statuses.append((depth, number))
    else:
        found.numbers.append(Number(key, number, parent))


def _gather_string(found: Evidence, value: str, key: str, parent: str, depth: int, *, prose: bool) -> None:
    stripped = value.strip()
    if not stripped or stripped.lower() in {"none", "null"}:
        return
    if key == "refusal" and stripped:
        found.add_token("refusal", "refusal", depth)
        found.add_text(stripped)
        return
    if stripped.lstrip("-").isdigit() and len(stripped) < 10 and _STATUS_KEY.search(key):
        _gather_number(found, float(stripped), key, parent, depth)
        return
    if BLOCK_KEY.search(key):
        found.add_token(key, stripped, depth)
    if is_word(stripped):
        _gather_word(found, stripped, key, depth, prose=prose)
        return
    if prose or stripped[0] in "{[":
        gather_text(found, stripped, depth, key=key)


def _gather_word(found: Evidence, word: str, key: str, depth: int, *, prose: bool) -> None:
    if key.endswith("type") and "://" in word:  # RFC 9457 problem types end with the machine word
        word = word.rstrip("/").rsplit("/", 1)[-1]
    if CODE_KEY.search(key) or FINISH_KEY.search(key) or not key:
        found.add_token(key or "text", word, depth)
    elif key == "name" and word.endswith(("Exception", "Error", "Fault")):
        found.add_token("exception", word, depth)
    if prose and (TEXT_KEY.search(key) or not key) and "://" not in word:
        found.add_text(word)


def is_word(text: str) -> bool:
    """Whether `text` is one machine word rather than prose or a literal."""
    return _WORD.fullmatch(text) is not None


def gather_text(found: Evidence, text: str, depth: int, *, key: str = "") -> None:
    """Adds what a text says to `found`, whatever form it has."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT * 2 // 3] + "\n" + text[-MAX_TEXT // 3 :]
    text = text.strip().lstrip("\ufeff")
    if _gather_json(found, text, depth, key):
        return
    if _gather_stream(found, text, depth):
        return
    if _HTML.search(text):
        text = _gather_page(found, text, depth)
    elif "</" in text:
        text = _gather_xml(found, text, depth)
    rest = _gather_literals(found, text, depth, key)
    _gather_prose(found, rest, depth)


def _gather_json(found: Evidence, text: str, depth: int, key: str) -> bool:
    if not text or text[0] not in '{["':
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    gather_value(found, value, key=key, depth=depth + 1)
    return True


def _gather_stream(found: Evidence, text: str, depth: int) -> bool:
    """Server-sent events: each `data:` is a body of its own, the event's name is a token."""
    if "data:" not in text and "event:" not in text:
        return False
    if _HTML.match(text):
        return False
    lines = _SSE_LINE.findall(text)
    if not lines or not any(name == "data" for name, _ in lines):
        return False
    for name, payload in lines[:100] + lines[100:][-100:]:
        if name == "event":
            found.add_token("event", payload.strip(), depth)
        elif name == "data" and payload.strip() not in ("", "[DONE]"):
            gather_value(found, payload, key="data", depth=depth + 1)
    outside = _SSE_LINE.sub("", text).strip()
    if outside:
        _gather_prose(found, outside, depth)
    return True


def _gather_page(found: Evidence, text: str, depth: int) -> str:
    """A page of a proxy: its error number, then its visible words without scripts, styles and tags."""
    found.flags.add("html")
    for number in _CF_CLASS.findall(text[:MAX_TEXT])[:3]:
        _add_page_number(found, int(number), depth)
    if "cdn-cgi/challenge" in text or "cf-chl" in text or "challenge-platform" in text:
        found.flags.add("challenge_page")
    visible = html.unescape(_TAG.sub(" ", _SILENT.sub(" ", text)))
    return " ".join(visible.split())


def _add_page_number(found: Evidence, number: int, depth: int) -> None:
    if 400 <= number <= 599:
        found.statuses.append((depth, number))
    else:
        found.add_token("cloudflare", str(number), depth)


def _gather_xml(found: Evidence, text: str, depth: int) -> str:
    for name, content in _XML_FIELD.findall(text)[:20]:
        gather_value(found, html.unescape(content), key=name.lower(), depth=depth + 1)
    return html.unescape(_TAG.sub(" ", text)) if _XML_FIELD.search(text) else text


def _gather_literals(found: Evidence, text: str, depth: int, key: str) -> str:
    """Reads each object literal inside the text; returns the prose around them."""
    rest: list[str] = []
    position = tries = 0
    while tries < MAX_LITERALS:
        start = _next_literal(text, position)
        if start < 0:
            break
        tries += 1
        try:
            value, end = read_literal(text, start)
        except (NotALiteralError, RecursionError):
            rest.append(text[position : start + 1])
            position = start + 1
            continue
        rest.append(text[position:start])
        position = end
        label = _LABEL.search(rest[-1][-60:])
        gather_value(found, value, key=snake(label[1]) if label else key, depth=depth + 1)
    rest.append(text[position:])
    return " ".join(rest)


def _next_literal(text: str, position: int) -> int:
    match = _LITERAL_START.search(text, position)
    return match.start() if match else -1


_LABEL = re.compile(r"\b([A-Za-z]\w{2,40})\s?[:=]?\s?$")
_LITERAL_START = re.compile(r"\{(?=\s{0,200}[\"'A-Za-z_$])|\[(?=\s{0,200}\{)")


def _gather_prose(found: Evidence, text: str, depth: int) -> None:
    text = _URL.sub(" ", text).strip()
    if not text:
        return
    if '{\\"' in text:  # JSON that was escaped once more
        text = _gather_literals(found, text.replace('\\"', '"'), depth + 1, "")
    found.add_text(text)
    found.numbers.extend(Number("code", int(code), "") for code in _JSON_RPC_TEXT.findall(text[:4000])[:5])
    page = _CF_TEXT.search(text[:2000])
    if page:
        found.add_token("cloudflare", page[1], depth)
    for word in _IDENTIFIER.findall(text)[:MAX_IDENTIFIERS]:
        found.add_token("text", word, depth)
    found.statuses.extend((depth + 1, status) for status in text_statuses(text))


def text_statuses(text: str) -> list[int]:
    """HTTP statuses that prose names as such, in the order of their places."""
    head = text[:4000]
    places = {
        match.start(1): int(match.group(1)) for pattern in _TEXT_STATUSES for match in pattern.finditer(head)
    }
    return [places[place] for place in sorted(places)]

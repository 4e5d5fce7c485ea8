"""Rules for words that mean something only in their own field: finish reasons, states, actions, pages."""

from __future__ import annotations

import re
from typing import NamedTuple

from airflow_relay.core.errors.reader import BLOCK_KEY
from airflow_relay.core.errors.signals import DECISIVE, FAINT, PLAIN, SPECIFIC
from airflow_relay.core.errors.taxonomy import ErrorClass as C


class WordRule(NamedTuple):
    error_class: C | None
    """None: the word says nothing, whatever later rules would read into it."""
    weight: int
    pattern: re.Pattern[str]
    seen: str


def word_rule(error_class: C | None, weight: int, pattern: str, seen: str) -> WordRule:
    # Every alternative begins at a word's edge: `und_err` must not be found in `not_found_error`.
    return WordRule(error_class, weight, re.compile(rf"(?:^|_)(?:{pattern})"), seen)


FINISH_RULES: tuple[WordRule, ...] = (
    word_rule(
        None,
        0,
        r"^(?:stop|end_turn|tool_?_?(?:use|calls?)|function_call|complete[d]?|"
        r"stop_sequence|eos(?:_token)?|finish_reason_unspecified|pause_turn|null|done|load|success)$",
        "the good ends",
    ),
    word_rule(
        C.CONTEXT_LENGTH,
        SPECIFIC,
        r"context|error_limit|prompt_too",
        "docs.anthropic.com model_context_window_exceeded; cohere ERROR_LIMIT",
    ),
    word_rule(
        C.CONTEXT_LENGTH,
        FAINT,
        r"^(?:max_?(?:output_|completion_)?tokens?|length|max_length|token_limit)$",
        "developers.openai.com incomplete_details; finish_reason length",
    ),
    word_rule(
        C.CONTENT_POLICY,
        DECISIVE,
        r"filter|safety|block|recit|prohib|spii|language|sensitive|toxic|guardrail|"
        r"image_(?:other|recit|prohib)|no_image|jailbreak|model_armor|moderat",
        "ai.google.dev FinishReason; docs.aws stopReason; zhipu sensitive",
    ),
    word_rule(C.OVERLOADED, SPECIFIC, r"insufficient_system", "api-docs.deepseek.com finish_reason"),
    word_rule(C.NETWORK, PLAIN, r"network", "open.bigmodel.cn finish_reason network_error"),
    word_rule(C.CANCELLED, PLAIN, r"cancel|abort", "vllm finish_reason abort; cohere USER_CANCEL"),
    word_rule(C.TIMEOUT, PLAIN, r"time_?out|deadline", "cohere finish_reason TIMEOUT"),
    word_rule(
        C.SERVER_ERROR,
        FAINT + 15,
        r"^error|retries_exhausted|malformed|unexpected_tool|fail",
        "openrouter finish_reason error; ai.google.dev MALFORMED_FUNCTION_CALL",
    ),
)

FIELD_RULES: tuple[tuple[re.Pattern[str], WordRule], ...] = (
    (BLOCK_KEY, word_rule(C.CONTENT_POLICY, DECISIVE, r".", "ai.google.dev promptFeedback.blockReason")),
    (
        re.compile(r"^(?:action|guardrail_action|amazon_bedrock_guardrail_action)$"),
        word_rule(
            C.CONTENT_POLICY,
            DECISIVE,
            r"^(?:blocked|guardrail_intervened|intervened|flagged)$",
            "docs.aws ApplyGuardrail",
        ),
    ),
    (
        re.compile(r"(?:^|_)(?:status|state)$"),
        word_rule(C.AUTH, PLAIN, r"^(?:task_state_)?auth_required$", "a2a-protocol.org AUTH_REQUIRED"),
    ),
    (
        re.compile(r"(?:^|_)(?:status|state|type|event)$"),
        word_rule(
            C.SERVER_ERROR,
            FAINT,
            r"^(?:response_|task_state_)?(?:failed|errored)$",
            "openai response.failed; a2a TASK_STATE_FAILED",
        ),
    ),
    (
        re.compile(r"(?:^|_)(?:status|state)$"),
        word_rule(
            C.CONTENT_POLICY, DECISIVE, r"^(?:content|request|error)_moderated$", "docs.bfl.ai result status"
        ),
    ),
    (
        re.compile(r"^cloudflare$"),
        word_rule(C.RATE_LIMIT, SPECIFIC, r"^10(?:15|27)$", "developers.cloudflare.com 1xxx errors"),
    ),
    (
        re.compile(r"^cloudflare$"),
        word_rule(
            C.AUTH, SPECIFIC, r"^1(?:00[5-9]|01[0-2]|020|106)$", "developers.cloudflare.com 1xxx errors"
        ),
    ),
    (
        re.compile(r"^cloudflare$"),
        word_rule(C.NETWORK, PLAIN, r"^10(?:00|01|16|33)$", "developers.cloudflare.com 1xxx errors"),
    ),
    (
        re.compile(r"^cloudflare$"),
        word_rule(C.SERVER_ERROR, PLAIN, r"^1[01]\d\d$", "developers.cloudflare.com 1xxx errors"),
    ),
)

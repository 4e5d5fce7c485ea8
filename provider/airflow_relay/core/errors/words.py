"""Rules for machine words: codes, types, statuses, reasons and exception names of all dialects.

Words come in snake case (see `evidence.snake`), so `RESOURCE_EXHAUSTED`, `ResourceExhausted` and
`resource-exhausted` are one. The first rule that fits a word counts, so narrower rules stand first; `seen`
says where the wire form was met.
"""

from __future__ import annotations

from airflow_relay.core.errors.evidence import Token
from airflow_relay.core.errors.finishes import FIELD_RULES, FINISH_RULES, WordRule, word_rule
from airflow_relay.core.errors.reader import FINISH_KEY
from airflow_relay.core.errors.signals import (
    DECISIVE,
    PLAIN,
    SPECIFIC,
    STATUS,
    VAGUE,
    VAGUE_STATUS,
    Signal,
)
from airflow_relay.core.errors.taxonomy import ErrorClass as C

RULES: tuple[WordRule, ...] = (
    word_rule(
        None,
        0,
        r"^(?:harm_(?:category|block|severity)_\w{1,60}|block_(?:none|only_high|"
        r"low_and_above|medium_and_above)|safety_(?:ratings?|settings?|identifier)"
        r"|rate_limits?_(?:docs|url)|content_type|error_type|max_tokens|max_completion_tokens|"
        r"max_output_tokens|retry_after|status_code|error_code|api_key|model_group|"
        r"usage_tier|service_tier|billing|payment_method|rate_limit_reset|max_retries|"
        r"timeout_seconds|(?:read|connect|request|client)_timeout_(?:ms|s|seconds)"
        r"|litellm_params.*|.*_exception_list)$",
        "names of parameters and fields that error texts mention",
    ),
    # Transient holds that wear the words of billing.
    word_rule(
        C.RATE_LIMIT,
        DECISIVE + 2,
        r"in_flight|credit_unresolved|pending_charge|upstream_provider_shared_pool",
        "developersdigest.tech openrouter/402-in-flight-budget-exhausted; BerriAI/litellm fluxrouter thread",
    ),
    # Windows: Google's quotaId, GitHub's x-ratelimit-type, OpenRouter's limit names.
    word_rule(
        C.QUOTA_EXHAUSTED,
        DECISIVE + 2,
        r"(?:per|by)_?(?:day|week|month)(?:_|$)|"
        r"(?:daily|weekly|monthly)_?(?:limit|quota|usage|spend|request|token|budget|cap)|"
        r"(?:daily|weekly|monthly)$",
        "google-gemini/gemini-cli QuotaFailure.quotaId; github models x-ratelimit-type; opencode "
        "MonthlyLimitError",
    ),
    word_rule(
        C.RATE_LIMIT,
        DECISIVE + 1,
        r"(?:per|by)_(?:minute|second|hour)",
        "google QuotaFailure.quotaId PerMinute",
    ),
    word_rule(
        C.RATE_LIMIT,
        PLAIN,
        r"allocation_quota(?!_free)|rate_quota|throttling_(?:rate|burst|user|allocation)",
        "help.aliyun.com model-studio error codes",
    ),
    word_rule(
        C.QUOTA_EXHAUSTED,
        DECISIVE,
        r"insufficient_(?:user_|account_|api_)?(?:quota|balance|credits?|funds?|"
        r"tokens?_quota|funding)|no_credits?|not_enough_(?:credits?|balance|quota|funds?)|"
        r"(?:quota|credits?|balance|funds)_(?:exhausted|depleted|empty|insufficient|limit)|"
        r"(?:low|negative|zero|exceed)_(?:balance|credits?)|out_of_(?:credits?|quota|funds)|billing|"
        r"payment|credit_balance|spend(?:ing)?_?(?:limit|cap|alert)|spend_|budget|arrear|overdue|"
        r"recharge|prepaid|postpaid|usage_limit|usage_not_included|exceeded_current_quota|"
        r"current_quota|hard_limit|free_?_?tier_only|free_quota|plan_(?:limit|expired|quota)|"
        r"subscription_(?:expired|inactive|required|quota|limit)|trial_(?:expired|ended|limit)|"
        r"service_quota_exceeded|quota_used_up|unpurchased|not_purchased|resource_package|"
        r"charge_resource|resource_exhaust_charge|invoice|credits?_(?:required|needed|exceeded)|"
        r"account_balance|monthly_quota",
        "platform.openai.com error codes; api-docs.deepseek.com; help.aliyun.com; docs.litellm.ai "
        "budgets; volcengine ark",
    ),
    word_rule(
        C.QUOTA_EXHAUSTED,
        SPECIFIC - 5,
        r"quota_?exceeded|exceeded_?quota|over_quota|quota_(?:limit_)?(?:reached|exceeded)|^quota$|"
        r"quota_error|insufficient_quota_error|credits$|credit_error|credits?_limit",
        "elevenlabs quota_exceeded; huggingface ZeroGPU",
    ),
    # Policy.
    word_rule(
        C.CONTENT_POLICY,
        DECISIVE,
        r"content_(?:filter|polic|moderat|violat|safety|block|check|security|"
        r"risk|unsafe|restrict|not_allowed)|responsible_ai|moderat|safety(?:_|$)|data_inspection|"
        r"sensitive|nsfw|prohibited|block_?list|recitation|guardrail|"
        r"polic(?:y|ies)_?(?:violation|block)|violat(?:ion|es)_.*polic|usage_polic|"
        r"(?:bio|cyber|misalignment|safety)_policy|toxic|^spii$|jailbreak|inappropriate|unsafe|"
        r"risk_control|illegal_content|csam|copyright|infringement|model_armor|harm(?:ful)?_|rai_|"
        r"(?:input|output|prompt|text|image)_(?:blocked|flagged)|"
        r"(?:blocked|flagged)_(?:input|output|prompt|content|by)|censor|prompt_injection|"
        r"prompt_attack|green_net|antispam|audit_fail",
        "learn.microsoft.com content filter; ai.google.dev FinishReason; help.aliyun.com "
        "DataInspectionFailed; docs.aws guardrails",
    ),
    word_rule(
        C.CONTENT_POLICY,
        SPECIFIC - 5,
        r"^invalid_prompt$|policy$",
        "developers.openai.com Responses error codes",
    ),
    word_rule(
        C.REFUSAL,
        DECISIVE,
        r"^(?:model_)?refusal$|^refused$|model_refus|refusal$|^(?:task_state_)?rejected$",
        "docs.anthropic.com stop_reason refusal; openai refusal part; a2a-protocol.org TASK_STATE_REJECTED",
    ),
    # Too large.
    word_rule(
        C.CONTEXT_LENGTH,
        DECISIVE,
        r"context_?(?:length|window|size|limit|overflow|exceed)|exceed_?(?:ed)?_context|"
        r"model_context|(?:prompt|input|text|message)s?_(?:is_)?too_(?:long|large)|"
        r"(?:tokens?|length)_limit_(?:exceeded|reached)|tokens_limit|"
        r"(?:max|maximum)_(?:prompt_)?tokens_(?:exceeded|reached)|max_prompt_tokens|max_context|"
        r"string_above_max|"
        r"(?:request|payload|entity|content|body|file|image)_(?:entity_)?(?:is_)?too_(?:large|"
        r"big|long)|too_large|error_limit$|"
        r"(?:prompt|input)_(?:token|length)s?_(?:limit|exceed|error)|size_limit_exceeded|"
        r"request_size|tokens?_exceeded",
        "platform.openai.com context_length_exceeded; llama.cpp exceed_context_size_error; github "
        "models tokens_limit_reached",
    ),
    word_rule(
        C.INVALID_REQUEST,
        VAGUE_STATUS + 2,
        r"extra_forbidden|string_type|json_invalid",
        "pydantic error types in 422 bodies",
    ),
    # Credentials.
    word_rule(
        C.AUTH,
        DECISIVE - 2,
        r"(?:invalid|incorrect|missing|expired|revoked|no|wrong|bad|disabled|"
        r"unknown)_(?:x_)?(?:api|access|auth|subscription|iam)?_?(?:key|token|"
        r"credentials?|signature|client_token|client|authentication|authorization)(?:_|$)|"
        r"api_?key_?(?:invalid|not|expired|missing|disabled|service_blocked|http|ip|revoked|error)|"
        r"^invalid_auth|expired_token|token_(?:expired|invalid|revoked|has_expired)|"
        r"unrecognized_client|incomplete_signature|signature_(?:does|not|doesn|error|expired)|"
        r"no_auth|credentials?_(?:error|not|missing|invalid|expired)|partial_credentials|"
        r"unsupported_country|(?:region|location|country)_(?:not|un)|not_supported_region|"
        r"account_(?:deactivated|disabled|inactive|locked|suspended|not_active|blocked)|"
        r"organization_(?:disabled|restricted|deactivated)|request_expired|request_time_too_skewed|"
        r"iam_permission|service_disabled|default_credentials|token_retrieval|refresh_error|"
        r"access_token_(?:scope|expired|type)|billing_disabled|consumer_invalid|"
        r"ip_(?:not|forbidden|blocked|address)|opt_in_required|invalid_client|invalid_grant|"
        r"sso_token",
        "ai.google.dev API_KEY_INVALID; docs.aws common errors; openai unsupported_country_region_territory",
    ),
    # Missing things.
    word_rule(
        C.NOT_FOUND,
        DECISIVE - 2,
        r"(?:model|deployment|endpoint|engine|assistant|agent|response|task|"
        r"thread|run|job|batch|session|file|function|version|entity|resource|"
        r"project|route|app)s?(?:_or_model)?_(?:is_)?(?:not_?found|not_?exists?|"
        r"does_not_exist|doesn_t_exist|not_exist|unknown)|"
        r"model_(?:decommissioned|deprecated|not_available|not_open|removed|"
        r"archived|terminated|unavailable_permanently)|"
        r"(?:unknown|no_such|nonexistent)_(?:model|deployment|agent|task|engine)|no_such_|"
        r"invalid_endpoint_or_model|deployment_does_not|model_not_support_for_account|"
        r"no_endpoints_found|unknown_url|resource_unavailable_not_exist|task_lost|resource_missing",
        "platform.openai.com model_not_found; learn.microsoft.com DeploymentNotFound; "
        "console.groq.com model_decommissioned; a2a TaskNotFound",
    ),
    # Load.
    word_rule(
        C.OVERLOADED,
        SPECIFIC - 5,
        r"overload|capacity_?(?:exceeded|error|limit|unavailable|not)|"
        r"insufficient_(?:system_resource|capacity|instance)|(?:no|out_of)_capacity|capacity$|"
        r"^capacity_|busy|high_demand|high_load|"
        r"model_(?:not_ready|loading|is_loading|cold|warming|currently_loading)|slow_down|"
        r"server_saturated|resource_insufficient|out_of_memory|cuda_out_of|"
        r"queue_(?:full|timeout|limit)|engine_overload|try_again_later|no_healthy_upstream|"
        r"no_available_(?:server|worker|replica|provider|instance)|all_providers_failed|peak_load|"
        r"insufficient_resource",
        "docs.anthropic.com overloaded_error; deepseek insufficient_system_resource; bedrock "
        "ModelNotReadyException; openai slow_down",
    ),
    word_rule(
        C.OVERLOADED,
        PLAIN,
        r"service_?(?:temporarily_)?unavailable|temporarily_unavailable|server_unavailable|"
        r"unavailable_error",
        "docs.aws bedrock ServiceUnavailableException",
    ),
    word_rule(
        C.RATE_LIMIT,
        PLAIN,
        r"rate_?limit|throttl|too_?many_?(?:requests?|concurrent|connections|calls|attempts)|"
        r"resource_?exhausted|request_?limit|limit_?requests|limit_burst|requests_limit|"
        r"(?:tpm|rpm|qps|rps|rpd)(?:_|$)|^(?:tpm|rpm|qps|rps)_|"
        r"concurren(?:cy|t)_?(?:limit|exceed|request)?|limit_?exceeded|frequency|request_quota|"
        r"flood|provisioned_throughput_exceeded|set_limit|limit_reached|^limitation$|"
        r"bandwidth_limit|traffic",
        "docs.anthropic.com rate_limit_error; docs.aws ThrottlingException; google.rpc "
        "RESOURCE_EXHAUSTED; volcengine RateLimitExceeded",
    ),
    # Time, wires, stops.
    word_rule(
        C.TIMEOUT,
        PLAIN + 2,
        r"time_?d?_?out|deadline|etimedout|wait_timeout|request_expired_in_queue|^expired$|"
        r"batch_expired|sandbox_timeout|gateway_time",
        "httpx/requests/aiohttp/botocore exception names; google.rpc DEADLINE_EXCEEDED",
    ),
    word_rule(
        C.CANCELLED,
        PLAIN + 1,
        r"cancel(?:l?ed|l?ation)?(?:_|$)|abort_error|user_abort|client_closed|keyboard_interrupt|"
        r"^(?:task_state_)?canceled$|^abort$|interrupted_by_user|request_aborted|user_cancel",
        "asyncio.CancelledError; google.rpc CANCELLED; openai status cancelled; DOM AbortError",
    ),
    word_rule(
        C.NETWORK,
        PLAIN + 1,
        r"connection|connect_?error|connector|disconnect|network|dns|gaierror|name_resolution|ssl|"
        r"tls|(?<!local_)protocol_error|remote_protocol|incomplete_?read|chunked|payload_error|"
        r"unknown_host|econn|enotfound|eai_|epipe|eproto|ehost|enet|socket|sock_|proxy_?error|"
        r"read_error|write_error|broken_pipe|certificate|transport_error|und_err|"
        r"stream_disconnected|remote_end|retry_error_connection|connection_closed|websocket|"
        r"^herror$|unreachable|no_route|endpoint_connection|bad_status_line|end_of_stream|"
        r"stream_closed|fetch_error|close_error",
        "httpx/httpcore/requests/urllib3/aiohttp/botocore/Node error names",
    ),
    # Families.
    word_rule(
        C.AUTH,
        PLAIN,
        r"unauthenti|unauthori[sz]ed|authenti?cation|authorization|auth_?error|auth_?fail|^auth$|"
        r"invalid_api_?key|apikey|invalid_signature|security_token|challenge",
        "docs.anthropic.com authentication_error; google.rpc UNAUTHENTICATED",
    ),
    word_rule(
        C.AUTH,
        STATUS + 2,
        r"permission|forbidden|access_?denied|not_authorized|not_entitled|request_forbidden|"
        r"not_allowed_to|insufficient_scope|account_|auth_required|proxy_authentication",
        "google.rpc PERMISSION_DENIED; docs.aws AccessDeniedException",
    ),
    word_rule(
        C.NOT_FOUND,
        PLAIN - 1,
        r"not_?_?found|does_not_exist|not_exist|no_such|unknown_model|^gone$|invalid_model|"
        r"unsupported_model|model_not_support",
        "docs.anthropic.com not_found_error",
    ),
    word_rule(
        C.OVERLOADED,
        STATUS + 2,
        r"^unavailable$|model_unavailable|unavailable$|not_ready|server_temporarily",
        "google.rpc UNAVAILABLE",
    ),
    word_rule(
        C.SERVER_ERROR,
        VAGUE_STATUS + 5,
        r"internal_?(?:server|failure|service|error)|internal_exception|bad_gateway|"
        r"model_(?:error|stream|timeout|crash|runner)|json_?decode|content_type_error|"
        r"malformed_(?:function|model|tool|response)|invalid_response|invalid_agent_response|"
        r"unexpected_tool_call|engine_(?:error|dead)|system_error|dependency|data_loss|vector_store|"
        r"key_in_use|already_running|conflict|response_validation|api_response_validation|runner|"
        r"task_state_failed|inference_error|prediction_failed|worker_error",
        "docs.aws InternalServerException; docs.aws ModelErrorException; ai.google.dev "
        "MALFORMED_FUNCTION_CALL",
    ),
    word_rule(
        C.INVALID_REQUEST,
        VAGUE_STATUS + 2,
        r"validation|unsupported|not_supported|"
        r"invalid_(?:param|value|type|input|image|json|schema|body|field|format|"
        r"tool|url|base64|message|function|function_call|encrypted)|"
        r"missing_(?:required|param|field)|required_param|unknown_parameter|unprocessable|malformed|"
        r"parameter|param_|param$|json_validate|tool_use_failed|unimplemented|not_implemented|"
        r"out_of_range|already_exists|failed_precondition|precondition|method_not|parse_error|"
        r"not_cancelable|serialization_error|local_protocol_error|image_parse|idempotency",
        "platform.openai.com invalid_request_error codes; google.rpc; docs.aws ValidationException; "
        "jsonrpc.org",
    ),
    word_rule(
        C.INVALID_REQUEST,
        VAGUE,
        r"invalid_?request|bad_?request|invalid_?argument|^invalid_|illegal_|user_error",
        "every OpenAI-compatible server",
    ),
    word_rule(
        C.SERVER_ERROR,
        VAGUE,
        r"server_?(?:side_)?_?error|^internal$|api_?error|upstream|provider_(?:response_)?error|"
        r"service_error|aborted|generation_failed|failed_generation|unknown_error_type",
        "every OpenAI-compatible server; google.rpc INTERNAL, ABORTED",
    ),
)


def token_signal(key: str, word: str, *, depth: int = 0, raw: str = "") -> Signal | None:
    """What one machine word tells, or None."""
    for field, rule in FIELD_RULES:
        if field.search(key) and rule.pattern.search(word):
            return _signal(rule, key, word, depth, raw)
    tables = FINISH_RULES + RULES if FINISH_KEY.search(key) else RULES
    for rule in tables:
        if rule.pattern.search(word):
            return _signal(rule, key, word, depth, raw)
    return None


def _signal(rule: WordRule, key: str, word: str, depth: int, raw: str) -> Signal | None:
    if rule.error_class is None:
        return None
    return Signal(rule.error_class, rule.weight, depth, f"{key} {raw or word}")


def word_signals(tokens: list[Token]) -> list[Signal]:
    """The signals of all machine words; one found in prose weighs a little less than one in its own field."""
    signals = []
    for token in tokens:
        signal = token_signal(token.key, token.word, depth=token.depth, raw=token.raw)
        if signal is not None:
            signals.append(signal if token.key != "text" else signal._replace(weight=signal.weight - 1))
    return signals

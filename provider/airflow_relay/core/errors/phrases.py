"""Rules for words: what error texts of all dialects say when no code says it.

The patterns run over lower-case text with plain quotes and single blanks. They repeat within bounds only, so
a long text costs linear time. A phrase names a kind of failure, never one message; `seen` says where it was
met.
"""

from __future__ import annotations

from airflow_relay.core.errors.phrases_limits import LIMIT_RULES
from airflow_relay.core.errors.signals import (
    PLAIN,
    SPECIFIC,
    STATUS,
    VAGUE_STATUS,
    PhraseRule,
    Signal,
    phrase_rule,
)
from airflow_relay.core.errors.taxonomy import ErrorClass as C

RULES: tuple[PhraseRule, ...] = (
    *LIMIT_RULES,
    phrase_rule(
        C.CONTEXT_LENGTH,
        SPECIFIC + 6,
        r"(?:maximum|max|model'?s?) context (?:length|window|size)|"
        r"context (?:length|window|size|limit)s? (?:is |has been |was |of [\w ]{0,30})?(?:exceed|"
        r"reach|too|is only|overflow|full)|exceeds? (?:the )?(?:[\w'.-]{1,30} ){0,5}context|"
        r"context_?length_?exceeded|exceed\w{0,3} n_ctx|n_ctx|"
        r"(?:prompt|input|message|request|conversation|text|content|query|document|"
        r"payload|inputs?)s? (?:is|are|was|length is|tokens? is|size is)? ?(?:too "
        r"(?:long|large|big)|longer than)|"
        r"too (?:long|large) for (?:the |this |requested )?(?:requested )?model|input is too long|"
        r"token (?:count|limit|length)s? ?(?:\(\d{1,12}\) )?(?:exceed|of \d{1,12} "
        r"exceed|is over|was exceeded|has been exceeded for)|"
        r"(?:exceed\w{0,3}|over|above|larger than|greater than|more than) (?:the "
        r")?(?:[\w'-]{1,20} ){0,4}(?:max(?:imum)? |allowed |permitted |input "
        r"|prompt |total )(?:[\w'-]{1,20} ){0,3}(?:tokens?|context|sequence|size|length|characters)|"
        r"(?:tokens|length|size|characters) (?:must|should|has to|need to) (?:be "
        r"(?:less|fewer|at most|smaller|under|<=?|shorter)|not exceed)|"
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be|`?inputs`? must have less than|"
        r"range of input length|maximum (?:allowed )?(?:number of (?:input |prompt )?tokens|input "
        r"tokens|sequence length|prompt length|input length)|"
        r"prompt (?:has|contains) \d{1,12} tokens|(?:must|input) be reduced in order|"
        r"requested tokens \(\d{1,12}\) exceed|"
        r"(?:request|message|body|payload|entity|content|file|image|upload)s? "
        r"(?:size |body |entity |length )?(?:too large|exceeds? the (?:maximum|"
        r"limit|max|allowed)|is too large|exceeds? maximum|larger than max)|"
        r"exceeds? the maximum size|too many (?:input )?tokens in|请求.{0,10}(?:过长|太长)|"
        r"(?:prompt|上下文|输入|文本).{0,12}(?:超长|过长|太长|超出.{0,6}(?:长度|限制|最大))|"
        r"trying to (?:submit|keep) (?:the first )?\d{1,12} tokens|message larger than max|"
        r"exceed\w{0,3} (?:the )?(?:[\w'-]{1,20} ){0,3}tokens? limit(?! per)|too many tokens: |"
        r"(?:input|prompt) tokens? (?:count )?exceed|length limit was reached|"
        r"tokens? (?:in the prompt |in your request |\d{1,9} )?(?:cannot|can't|"
        r"must not|may not|can not) exceed",
        "openai, anthropic, google, aws, vllm, llama.cpp, tgi, lm studio, dashscope; corpus ids "
        "*context*, *too-long*",
    ),
    phrase_rule(
        C.CONTEXT_LENGTH,
        PLAIN - 3,
        r"reduce the (?:length|size|amount|number) of (?:the |your )?(?:messages?|"
        r"prompt|input|tokens|context|request|conversation)|"
        r"(?:try|use|using) (?:using )?a shorter (?:prompt|input)|"
        r"please (?:reduce|shorten|trim) (?:your |the )?(?:prompt|input|message|context|request)|"
        r"reduce your message size",
        "advice that rate limits give too: anthropic 429 'reduce the prompt length ... or try again later'",
    ),
    phrase_rule(
        C.INVALID_REQUEST,
        SPECIFIC + 16,
        r"(?<!\+ )(?<!\+ `)max_(?:completion_|output_|new_)?tokens[`'\"]{0,2} "
        r"?(?:\(\d{1,9}\) |or [`'\w]{1,30} )?(?:must be (?:less|at most|<=|in|"
        r"between)|cannot exceed|can't exceed|is too large)(?!.{0,200}context length)",
        "groq and databricks 400 on the answer's size, which is a setting and not the input",
    ),
    phrase_rule(
        C.CONTENT_POLICY,
        SPECIFIC + 4,
        r"content (?:management |safety |usage |moderation |security )?(?:polic(?:y|ies)|filter)|"
        r"content[- ]filter|usage (?:polic(?:y|ies)|guidelines)|"
        r"(?:acceptable|safety|community|responsible ai|terms of use)[\w -]{0,12}(?:polic(?:y|"
        r"ies)|guidelines|standards)|"
        r"safety (?:system|filter|setting|reason|check|violation|guard|guideline)s?|"
        r"(?:violat|against|not allowed by|contrary to|comply with|breach)\w{0,4} "
        r"(?:of )?(?:\w{1,15}'?s? ){0,4}(?:polic(?:y|ies)|guidelines|content|"
        r"rules|terms)(?! exceeded)|\bnsfw\b|content exists? risk|"
        r"(?:flagged|blocked|rejected|filtered|refused|stopped|withheld|censored)"
        r" (?:by|due to|because of|for|as) (?:\w{1,15} ){0,5}(?:moderation|safety|"
        r"content|policy|polic|guardrail|filter|violat|harm|sexual|violen|hate|"
        r"risk|prohibited|cyber|biolog|sensitive|unsafe|inappropriate|copyright|recitation)|"
        r"input was flagged|(?:prompt|input|output|content|request|image|text|message|response)"
        r"s? (?:was|were|is|has been|have been|got|data )? ?(?:flagged|moderated|"
        r"censored|blocked for|filtered)|"
        r"(?:inappropriate|sensitive|harmful|unsafe|prohibited|explicit|offensive|"
        r"disallowed|objectionable) (?:content|word|input|material|information|language|prompt)|"
        r"(?:content|outputted|output|prompt|image|text) (?:is|was|has been) blocked|"
        r"content moderation|moderation (?:block|system|check|fail|endpoint)|"
        r"(?:responsible ai|guardrail) (?:polic|interven|block)|prohibited_content|recitation|"
        r"content violat|violative|may contain (?:inappropriate|sensitive|unsafe|harmful)|"
        r"(?:person'?s likeness|real people|minors|public figure)s? (?:is|are)? ?not|"
        r"copyright(?:ed)? (?:material|content|violation|restriction)|敏感|违规|不安全|内容安全|"
        r"风控|审核(?:不|未|失)|违反|涉及.{0,6}内容|finish reason: safety|due to safety|"
        r"blocked by (?:the )?(?:safety|content|policy|moderation|guardrail)|block(?:ed)?_?reason",
        "azure, openai, google, aws, dashscope, replicate, openrouter, xai, stability; corpus ids "
        "*filter*, *safety*, *nsfw*",
    ),
    phrase_rule(
        C.REFUSAL,
        SPECIFIC + 2,
        r"\b(?:model|agent|assistant|claude|gpt|gemini|llm)\b (?:has |have )?(?:refused|"
        r"declined) (?:to|the|this|your)|stop_reason['\"]?[ :=]{1,3}['\"]?refusal|"
        r"finish_reason['\"]?[ :=]{1,3}['\"]?refusal|refusal (?:stop|message|content)|model refus|"
        r"response was a refusal|refused to (?:answer|respond|generate|comply|produce|complete)|"
        r"declined to (?:answer|respond|generate|complete)|task (?:was )?rejected by (?:the )?agent",
        "docs.anthropic.com handle refusals; openai LengthFinish/Refusal errors of pydantic-ai and langchain",
    ),
    phrase_rule(
        C.AUTH,
        SPECIFIC - 2,
        r"(?:missing|wrong|bad|malformed|unrecognized|no|unknown|disabled|illegal|"
        r"empty|inactive) (?:or (?:missing|expired|invalid|inactive) )?(?:x-)?(?:api|"
        r"access|auth|authentication|authorization|subscription|bearer|security|"
        r"secret|user|client|openai)[-_ ]?(?:key|token|credentials?|header)\b|"
        r"(?:invalid|incorrect|expired|revoked|not a valid) (?:or (?:missing|"
        r"expired|invalid|inactive) )?(?:x-)?(?:(?:api|access|auth|authentication|"
        r"authorization|subscription|bearer|security|jwt|secret|huggingface|"
        r"user|session|oauth|client|openai|service account|license|the) ?)?[-_ ]?(?:key|"
        r"token|credentials?|signature|authorization header|auth header|authentication)"
        r"\b(?! (?:count|limit|id))|"
        r"(?:api|access|auth)[-_ ]?(?:key|token)s? (?:is |was |has |are |provided "
        r"|you provided |format |specified ){0,4}(?:not (?:valid|found|provided|"
        r"set|exist|configured|correct|recognized|authorized)|invalid|incorrect|"
        r"expired|missing|revoked|required|disabled|wrong|leaked|been (?:disabled|"
        r"revoked|reported|deleted|blocked))|"
        r"(?:could not|couldn't|cannot|failed to|unable to|did not|didn't|not)"
        r" (?:resolve |validate |verify |be )?authenticat|"
        r"authenticat\w{1,4} (?:fail|required|is required|error|invalid|parameter)|"
        r"must (?:provide|be) (?:an? )?(?:api key|authenticat|logged|signed)|"
        r"you didn't provide an api key|provide (?:a valid|an|your) api key|"
        r"signature (?:expired|does ?n[o']t match|mismatch|we calculated)|security token|"
        r"unable to locate credentials|credentials (?:were )?not (?:found|be found|provided)|"
        r"reauthentication|log ?in (?:again|required|to)|jwt (?:is |verification |expired)|"
        r"token (?:has )?expired|令牌|鉴权|认证失败|身份验证|密钥|未授权|无权|"
        r"(?:country|region|location|territory)[\w, ]{0,30}(?:is |are )?(?:not "
        r"supported|unsupported|not available|restricted|not allowed|forbidden)|"
        r"not (?:supported|available) in your (?:country|region|location)|"
        r"(?:organization|account|user|workspace|key)(?: [\w'-]{1,30})? (?:has "
        r"been |is |was )(?:temporarily |currently )?(?:deactivated|disabled|"
        r"banned|blocked|suspended|terminated|locked|not active|restricted)|you have been blocked|"
        r"attention required|just a moment|verify you are (?:a )?human|checking your browser|"
        r"enable javascript and cookies|access (?:has been |was |is )?blocked|banned your access|"
        r"(?:not|isn't) authorized to|rbac: access denied|"
        r"(?:does not|doesn't|do not|don't) have (?:the )?(?:required |necessary "
        r"|sufficient |correct )?(?:permissions?|scopes?|access rights|authorization)|"
        r"missing (?:the )?(?:\w{1,20} )?scope|"
        r"insufficient (?:permission|scope|privilege|authentication)|"
        r"ip (?:address )?(?:is )?(?:not |un)(?:allowed|authorized|whitelisted)|opt[- ]in|"
        r"gated (?:repo|model)|must accept|terms of service must",
        "openai, anthropic, google, aws, azure, huggingface, moonshot, groq WAF page, cloudflare; "
        "corpus ids *401*, *403*",
    ),
    phrase_rule(
        C.AUTH,
        STATUS + 4,
        r"access (?:is |was )?(?:denied|forbidden)|permission[\w' ./-]{0,80} denied|"
        r"permission denied|\bunauthori[sz]ed\b|\bforbidden\b|"
        r"not allowed to (?:access|use|sample|call|perform)|request not allowed|authentication|"
        r"unauthenticated|no access to|restricted access|invalid username",
        "mistral, aws api gateway, openai",
    ),
    phrase_rule(
        C.NOT_FOUND,
        SPECIFIC - 3,
        r"(?:model|deployment|engine|endpoint|agent|assistant|task|thread|response|"
        r"run|job|session|resource|project|function|entity|file|batch|pipeline|"
        r"repository|version|route|publisher model|prediction|conversation)s?\b[\s:]{0,2}(?:with "
        r"(?:id )?)?(?:['\"`][^'\"`]{1,200}['\"`]|[\w/.:@-]{1,120})?,? ?(?:for "
        r"this resource |for account \S{1,50} |on this server |you requested "
        r"|id )?(?:was |is |were |could |can |has |had |does |did |do |has been "
        r")?(?:not (?:be )?(?:found|exist|available for|deployed|hosted|been "
        r"found|a valid model)|n't exist|doesn't exist|not exist|cannot be found|"
        r"decommissioned|been (?:deprecated|decommissioned|removed|retired|shut "
        r"down|deleted)|deprecated|retired|no longer (?:available|supported|exists|hosted)|unknown)|"
        r"no (?:such (?!host)|endpoints? found|model found|model named|route "
        r"(?:matched|found|for)|matching (?:model|deployment|endpoint|route)|allowed providers)|"
        r"unknown (?:model|agent|task|engine|deployment)|"
        r"(?:does not|doesn't) have access to (?:the )?(?:model|it)|"
        r"(?:model|deployment)[^.]{0,100}(?:not found|does not exist|do not "
        r"have access|is not a valid model)|try pulling it|模型.{0,10}不存在|不存在|"
        r"not a valid model id|invalid model(?: name| id|:)|"
        r"model[\w ]{0,20} is not supported for account|end of (?:its )?life",
        "openai, azure, vertex, ollama, groq, openrouter, nim, together; corpus ids *404*",
    ),
    phrase_rule(
        C.NOT_FOUND,
        STATUS + 1,
        r"\bnot found\b|does not exist|doesn't exist|unknown url|cannot (?:get|post) /|"
        r"no longer exists|not_found",
        "fastapi, express, go http",
    ),
    phrase_rule(
        C.TIMEOUT,
        PLAIN + 4,
        r"timed? ?-?out\b(?! of)|deadline (?:was |has |is )?(?:expired|exceeded|elapsed)|"
        r"deadline_exceeded|gateway time-?out|took too long|etimedout|read timeout(?!=)|"
        r"request timeout|超时|time limit (?:exceeded|reached)|timeout of \d{1,9} ?m?s exceeded|"
        r"exceeded (?:the )?(?:maximum |time|timeout|30000)(?:execution |allowed )?(?:time|ms)|"
        r"exceeded timeout|no response (?:was )?received within|"
        r"did not (?:respond|complete|finish) (?:in time|within)|maximum execution time",
        "httpx, requests, aiohttp, botocore, nginx, envoy 'upstream request timeout', aws api gateway",
    ),
    phrase_rule(
        C.NETWORK,
        PLAIN + 1,
        r"connection (?:was |has been |is |attempt )?(?:unexpectedly )?(?:refused|"
        r"reset|aborted|closed|error|failed|failure|lost|broken|terminated|dropped|"
        r"timed|interrupted|forcibly)|connect(?:ion)? error|cannot connect|can't connect|"
        r"could not connect|couldn't connect|failed to (?:connect|establish)|"
        r"unable to (?:connect|reach)|(?:name|host) (?:resolution|or service not known|lookup)|"
        r"name or service not known|nodename nor servname|no such host|getaddrinfo|"
        r"could not resolve|dns (?:error|resolution|lookup|failure)|"
        r"network (?:is )?(?:unreachable|error|connection|issue|failure|down)|no route to host|"
        r"host is down|broken pipe|peer closed|remote end closed|server disconnected|"
        r"disconnected without|socket hang up|(?<!backend )fetch failed|econn\w{3,8}|enotfound|"
        r"eai_again|epipe|ssl(?:error|:|_|eof)|certificate (?:verify|has expired|verification)|"
        r"tls (?:handshake|connection|alert)|handshake fail|unexpected eof|eof occurred|"
        r"incomplete (?:chunked )?read|chunked|connection pool|max retries exceeded with url|"
        r"unknownhost|error sending request|"
        r"stream (?:disconnected|closed|ended|was reset|terminated)|premature close|"
        r"other side closed|terminated unexpectedly mid-stream|upstream connect error|"
        r"disconnect/reset before headers|dial tcp|error communicating with|network_error|"
        r"websocket closed|origin is unreachable|proxy (?:error|connection)|"
        r"tunnel connection failed|web server is down|response payload is not completed|"
        r"failed to fetch|网络错误|连接.{0,6}(?:失败|中断|超时|重置)",
        "httpx, requests, aiohttp, urllib3, Node undici, Go net, Rust reqwest, envoy; corpus ids exc-*",
    ),
    phrase_rule(
        C.CANCELLED,
        PLAIN,
        r"(?:request|operation|task|run|job|stream|response|generation|prediction|"
        r"call) (?:was |has been |is |got )?(?:cancell?ed|aborted by)|"
        r"cancell?ed (?:by|due to|before)|context cancell?ed|\bcancell?ed\b|"
        r"client (?:closed|disconnected|cancelled|aborted)|"
        r"user (?:aborted|cancelled|canceled|interrupted|stopped)|this operation was aborted|"
        r"request was aborted(?! due to conflict)|signal is aborted",
        "cohere 499, google 499, go context canceled, DOM AbortError",
    ),
    phrase_rule(
        C.INVALID_REQUEST,
        PLAIN - 4,
        r"malformed (?:input|request)|"
        r"required (?:key|property|field|parameter) .{0,40}(?:not found|missing)",
        "bedrock 'Malformed input request: required key [messages] not found'",
    ),
    phrase_rule(
        C.SERVER_ERROR,
        VAGUE_STATUS + 4,
        r"internal (?:server |service |system )?(?:error|failure)|"
        r"server (?:had|encountered) an? (?:\w{1,15} )?error|"
        r"(?:unexpected|unhandled|unknown) (?:server )?(?:error|exception)(?: "
        r"(?:occurred|happened|on the server))?|something went wrong|bad gateway|"
        r"expecting value: line|unexpected mimetype|not valid json|invalid json (?:in )?response|"
        r"unexpected token '?<|(?:process|runner|worker|engine|kernel|model) (?:process )?(?:has "
        r"|was |have )?(?:unexpectedly )?(?:terminated|stopped|crashed|died|exited|killed)|"
        r"cuda error|segmentation fault|"
        r"returned (?:an )?(?:error|empty|invalid|malformed) ?(?:response|reply|completion)?|"
        r"empty (?:model )?(?:response|completion|reply|choices)|"
        r"no (?:choices|candidates|content|output|response) (?:were |was |in "
        r")?(?:returned|generated|received|response)|'nonetype' object|内部错误|"
        r"服务(?:器)?(?:异常|错误|内部)|系统(?:异常|错误)|"
        r"upstream (?:provider )?(?:returned an )?error|failed to (?:generate|load model|process)|"
        r"error occurred while processing your request|backend error|"
        r"already (?:running|in progress|being processed)|another in-progress|due to conflict|"
        r"could not parse (?:the )?(?:response|llm output|model output)|worker (?:threw|exceeded)",
        "openai, google, ollama, vllm, aiohttp ContentTypeError, json decoders on HTML pages",
    ),
    phrase_rule(
        C.INVALID_REQUEST,
        VAGUE_STATUS + 3,
        r"(?:unknown|unsupported|unrecognized|unexpected|invalid|missing|extra|"
        r"illegal|malformed|bad)(?: (?:required|request|input|tool|json|image|"
        r"field|or))? (?:parameter|argument|value|param|field|key\b|property|"
        r"keyword|type|format|schema|option|role|request|input|json|url|image|"
        r"method|body|header|media type|content type|base64|model output|file)|"
        r"(?:is|are) (?:not supported|unsupported|required|not allowed|mandatory|"
        r"invalid|not permitted|deprecated for)|does not (?:support|match)|doesn't support|"
        r"not supported|field required|extra inputs are not permitted|extra fields|"
        r"must be (?:one of|a |an |in |between|of type|provided|specified|set|"
        r"at least|non-empty|followed|greater|positive|less)|"
        r"must (?:alternate|have|contain|match|not be|start|end|include)|should be|"
        r"cannot be (?:used|empty|null|both|combined|set|specified|disabled)|"
        r"could not (?:parse|decode|process (?:the )?(?:image|request))|"
        r"failed to (?:parse|deserialize|decode|validate)|cannot (?:parse|deserialize|unmarshal)|"
        r"validation (?:error|failed)|invalid (?:schema|argument|parameter|request)|parameter error|"
        r"参数|格式|unprocessable|not a valid|mutually exclusive|expected (?:a|an|one of) |"
        r"method not (?:found|allowed)|conflict|already exists|bad request",
        "openai, anthropic, google, aws, vllm pydantic errors, openrouter",
    ),
)


def phrase_signals(prose: str) -> list[Signal]:
    """The signals of all phrases in `prose` (see `Evidence.prose`)."""
    signals = []
    for rule in RULES:
        match = rule.pattern.search(prose)
        if match:
            signals.append(Signal(rule.error_class, rule.weight, 0, f'words "{match.group(0)[:60]}"'))
    return signals

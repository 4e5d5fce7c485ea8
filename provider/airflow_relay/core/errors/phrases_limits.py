"""Rules for words about money, load and limits (see `phrases` for how they are read)."""

from __future__ import annotations

from airflow_relay.core.errors.signals import PLAIN, SPECIFIC, STATUS, PhraseRule, phrase_rule
from airflow_relay.core.errors.taxonomy import ErrorClass as C

LIMIT_RULES: tuple[PhraseRule, ...] = (
    phrase_rule(
        C.QUOTA_EXHAUSTED,
        SPECIFIC + 2,
        r"(?:insufficient|not enough|low|negative|zero|exhausted|no|out of|run "
        r"out of|ran out of|lack of|inadequate|depleted|used up|used all|consumed "
        r"all) (?:(?:your|the|account|api|available|remaining|prepaid|of|included|"
        r"monthly|free|user|pre-paid|call|volume|request|compute|gpu|token|daily)"
        r" ){0,4}(?:credits?|balance|funds?|quota|tokens? quota|funding|credit balance|allowance)\b|"
        r"(?:balance|credits?|funds|quota|allowance) (?:is|are|has been|have "
        r"been|was|were)? ?(?:too low|insufficient|not enough|exhausted|depleted|"
        r"used up|empty|negative|below|zero|run out|exceeded|expired|finished)|"
        r"(?:billing|spend(?:ing)?|monthly|usage|budget|hard|plan|subscription|"
        r"expense|cost) (?:hard |soft |spend(?:ing)? |usage |token |request "
        r")?(?:limit|cap|threshold|quota)s? (?:has been |was |is |of \S{1,20} "
        r")?(?:reached|exceeded|hit|exhausted)|"
        r"(?:reached|exceeded|hit|exhausted|used up|over|crossed|surpassed|used "
        r"all of|reaching|exceeding) (?:(?:your|the|its|their|of|this|my|current|"
        r"specified|team|user|organization|workspace|account|api|plan'?s?|included|"
        r"free) ){0,4}(?:(?:monthly|daily|weekly|billing|spend(?:ing)?|usage|"
        r"subscription|credit|free|trial|session|5-hour|hourly) ){1,3}(?:[\w-]{1,15} "
        r"){0,2}(?:limit|cap|quota|allowance|credits?|budget|allotment|allocation|tier)|"
        r"(?:exceeded|crossed|over) (?:your |the |its )?budget|"
        r"budget (?:has been |was |limit )?(?:exceeded|exhausted|reached)|"
        r"exceeded your current quota|"
        r"you(?:'ve| have) (?:exceeded|reached|hit|exhausted|used up) your (?:[\w-]{1,20} "
        r"){0,4}(?:quota|usage limits?|credits?|allowance|message limit)|"
        r"usage limits?\.? (?:has been |was )?(?:reached|exceeded|hit)?.{0,40}(?:regain|upgrade)|"
        r"usage limit (?:has been )?reached|\d{1,2}-hour (?:usage )?limit|"
        r"you(?:'ve| have) (?:hit|reached) your (?:(?!rate|request|concurr|token)"
        r"[\w-]{1,15} ){0,3}limit\b|"
        r"free (?:tier |trial |plan |usage |quota )(?:[\w ]{0,30})?(?:exhausted|"
        r"expired|ended|has run out|is over|used up|exceeded|no longer)|"
        r"trial (?:has |period |key |is )?(?:expired|ended|over)|"
        r"(?:payment|top[- ]?up|recharge|billing|credit card|purchase|subscription)"
        r" (?:is |method |details )?(?:required|needed|failed|overdue|missing|must)|"
        r"please (?:top[- ]?up|recharge|add (?:more )?(?:credits?|funds)|buy|"
        r"purchase|pay|upgrade your plan|add a payment|set up billing|enable billing)|"
        r"add credits at|(?:requires? more|need more|purchase (?:more )?|buy (?:more )?) ?credits|"
        r"can only afford|"
        r"account (?:is |has )?(?:suspended|frozen|restricted|disabled|locked)?.{0,30}(?:insufficient|"
        r"balance|past invoices|unpaid|overdue|arrears|payment)|(?:in|is in) arrears|"
        r"account is in good standing|past due|unpaid invoice|overdue|欠费|余额不足|"
        r"余额.{0,6}(?:不足|耗尽|用完)|"
        r"(?:额度|配额|套餐|流量|次数).{0,8}(?:不足|用完|用尽|耗尽|已满|超限|用光)|充值|欠款|资源包|"
        r"insufficient balance|billing_not_active|not active, please check your billing|"
        r"billing (?:is )?not (?:enabled|active)|spend limit|spending cap|usage cap|"
        r"quota (?:for [\w ]{1,40}?)?(?:has been |was |is )?(?:exhausted|used up|depleted|reached)|"
        r"exceeded your (?:gpu|included|monthly|pro) (?:quota|credits|included)|"
        r"monthly included credits",
        "openai, anthropic, deepseek, moonshot, zhipu, dashscope, xai, openrouter, litellm, "
        "huggingface; corpus ids *balance*, *budget*",
    ),
    phrase_rule(
        C.OVERLOADED,
        SPECIFIC + 7,
        r"(?:high|peak|heavy|unusual) (?:demand|load)\b|reset reason: overflow",
        "azure openai 'usage size allowed during peak load'",
    ),
    phrase_rule(
        C.OVERLOADED,
        SPECIFIC - 2,
        r"overload(?:ed|ing)?\b|"
        r"(?:capacity|load) (?:has been |temporarily |is |was |limit )?(?:exceeded|"
        r"reached|exhausted|full|constrained|too high)|"
        r"(?:no|not enough|insufficient|out of|at|over|lacks?|limited|lack of)"
        r" (?:available |sufficient |spare |full |gpu |compute |server )?capacity|"
        r"capacity (?:issues|constraints|limits|error|is limited|unavailable)|"
        r"(?:high|heavy|peak|unusually high|excessive) (?:demand|load|traffic|usage|volume)|"
        r"(?:server|service|system|model|engine|cluster|backend)s? (?:is |are "
        r")?(?:currently |too |temporarily |very ){0,4}busy|busy now|"
        r"is (?:currently |still )(?:loading|warming|starting|cold)\b|loading model|"
        r"model (?:is )?(?:currently )?(?:loading|warming up|not ready|cold)|no healthy upstream|"
        r"(?:no|all) (?:available |healthy )?(?:instances?|workers?|replicas?|"
        r"servers?|providers?|backends?) (?:are |is )?(?:available|busy|unavailable|"
        r"ready|currently)|queue (?:is )?full|max(?:imum)? (?:pending|queued|queue)|out of memory|"
        r"too many people|服务.{0,6}(?:繁忙|过载)|系统.{0,4}(?:繁忙|过载)|"
        r"(?:访问量|负载)过(?:大|高)|当前.{0,10}(?:繁忙|过载)|算力不足|insufficient system resource|"
        r"server_overload|resource pressure|upstream.{0,20}(?:saturated|at capacity)|saturated|"
        r"负载已饱和",
        "openai, anthropic, google, mistral, moonshot, deepseek, huggingface inference api, ollama "
        "'server busy', envoy",
    ),
    phrase_rule(
        C.OVERLOADED,
        STATUS,
        r"(?:service|server|model|provider|endpoint|site|upstream|system) (?:is "
        r")?(?:currently |temporarily |momentarily ){0,4}(?:un|not )available|"
        r"temporarily (?:un|not )available|unable to process your request|no deployments available|"
        r"no available model provider|under maintenance|down for maintenance|please wait a moment|"
        r"server unavailable|not ready|provider.{0,30}unavailable",
        "bedrock, openrouter, huggingface, litellm router",
    ),
    phrase_rule(
        C.RATE_LIMIT,
        PLAIN + 4,
        r"rate[- _]?limit(?:ed|ing|s)?\b(?! (?:documentation|docs|increase))|"
        r"too many (?:requests?|api (?:calls|requests)|calls|concurrent|connections|"
        r"tokens, please|attempts|messages)|throttl(?:ed|ing)|"
        r"(?:requests?|calls|queries|tokens|images|messages) ?(?:per|/|a) ?(?:minute|"
        r"second|min|sec|hour)\b|max (?:organization )?(?:rpm|tpm|concurrency)|"
        r"(?:requests?|concurrency|concurrent requests?|qps|rpm|tpm|throughput)"
        r" (?:quota |limit |rate )?(?:has been |is |was )?(?:exceeded|reached|exceeds|too high)|"
        r"exceed\w{0,3} (?:the )?(?:[\w-]{1,20} ){0,3}(?:concurrency|concurrent|"
        r"throughput|request rate|call rate)|slow down|request limit (?:reached|exceeded)|"
        r"request was throttled|resource(?:s)? (?:has been |have been |is |temporarily )?exhausted|"
        r"\b(?:qps|tpm|rpm) limit|quota exceeded for (?:metric|aiplatform)|quota exceeded|并发|频率|"
        r"限流|请求.{0,6}(?:过多|太多|频繁|上限)|速率|too frequent|cooldown|being rate|max requests|"
        r"exceeded the (?:maximum )?number of (?:requests|calls)|"
        r"accessed .{0,40}too (?:quickly|often)|limit for (?:requests|tokens)",
        "openai, azure, anthropic, cohere, together, moonshot, dashscope, aws 'Too many requests', "
        "cloudflare 1015",
    ),
)

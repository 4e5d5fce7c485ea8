"""Rules for numbers: HTTP statuses, gRPC and JSON-RPC codes, and vendors' own numeric codes."""

from __future__ import annotations

from airflow_relay.core.errors.evidence import Evidence
from airflow_relay.core.errors.signals import PLAIN, STATUS, VAGUE, VAGUE_STATUS, Signal
from airflow_relay.core.errors.taxonomy import ErrorClass as C

HTTP: dict[int, tuple[C, int]] = {
    400: (C.INVALID_REQUEST, VAGUE_STATUS),
    401: (C.AUTH, STATUS),
    402: (C.QUOTA_EXHAUSTED, STATUS + 3),
    403: (C.AUTH, VAGUE_STATUS),
    404: (C.NOT_FOUND, STATUS),
    407: (C.AUTH, STATUS),
    408: (C.TIMEOUT, STATUS),
    409: (C.SERVER_ERROR, VAGUE),  # a lock or a twin in flight: the vendors' SDKs retry it
    410: (C.NOT_FOUND, STATUS),
    413: (C.CONTEXT_LENGTH, STATUS + 11),
    414: (C.CONTEXT_LENGTH, STATUS),
    421: (C.NETWORK, VAGUE_STATUS),
    423: (C.OVERLOADED, VAGUE_STATUS),
    424: (C.SERVER_ERROR, VAGUE_STATUS),  # Bedrock's ModelErrorException
    425: (C.OVERLOADED, VAGUE_STATUS),
    429: (C.RATE_LIMIT, STATUS),
    444: (C.NETWORK, STATUS),  # nginx closed without an answer
    451: (C.CONTENT_POLICY, VAGUE_STATUS),  # StepFun: the censor; a region block says so in words
    460: (C.CANCELLED, STATUS),  # AWS load balancer: the client left
    498: (C.OVERLOADED, STATUS),  # Groq: flex tier has no capacity
    499: (C.CANCELLED, STATUS),  # nginx, Google and Cohere: the client left
    501: (C.INVALID_REQUEST, VAGUE_STATUS),
    503: (C.OVERLOADED, VAGUE_STATUS),
    504: (C.TIMEOUT, STATUS),
    509: (C.RATE_LIMIT, STATUS),
    511: (C.AUTH, STATUS),
    522: (C.TIMEOUT, STATUS),
    523: (C.NETWORK, STATUS),
    524: (C.TIMEOUT, STATUS),
    525: (C.NETWORK, STATUS),
    526: (C.NETWORK, STATUS),
    527: (C.NETWORK, STATUS),
    529: (C.OVERLOADED, STATUS),
    561: (C.AUTH, STATUS),
    598: (C.TIMEOUT, STATUS),
    599: (C.TIMEOUT, STATUS),
}
"""RFC 9110, and what nginx, Cloudflare (52x), AWS load balancers (460, 561) and Anthropic (529) add."""

GRPC: dict[int, C] = {
    1: C.CANCELLED,
    3: C.INVALID_REQUEST,
    4: C.TIMEOUT,
    5: C.NOT_FOUND,
    7: C.AUTH,
    8: C.RATE_LIMIT,
    9: C.INVALID_REQUEST,
    10: C.SERVER_ERROR,
    13: C.SERVER_ERROR,
    14: C.OVERLOADED,
    16: C.AUTH,
}
"""grpc.github.io status codes, as the `grpc-status` header carries them."""

JSON_RPC: dict[int, tuple[C, int]] = {
    -32700: (C.INVALID_REQUEST, STATUS),
    -32600: (C.INVALID_REQUEST, STATUS),
    -32601: (C.INVALID_REQUEST, STATUS + 2),  # outweighs its own words, "method not found"
    -32602: (C.INVALID_REQUEST, STATUS),
    -32603: (C.SERVER_ERROR, STATUS),
    -32000: (C.SERVER_ERROR, VAGUE),
    -32001: (C.NOT_FOUND, STATUS),  # A2A; MCP's "Request timed out" is told by its words
    -32002: (C.INVALID_REQUEST, STATUS),
    -32003: (C.INVALID_REQUEST, STATUS),
    -32004: (C.INVALID_REQUEST, STATUS),
    -32005: (C.INVALID_REQUEST, STATUS),
    -32006: (C.SERVER_ERROR, STATUS),
    -32007: (C.INVALID_REQUEST, STATUS),
    -32008: (C.INVALID_REQUEST, STATUS),
    -32009: (C.INVALID_REQUEST, STATUS),
    -32800: (C.CANCELLED, STATUS),
}
"""jsonrpc.org and the A2A specification, section on errors."""

_ZHIPU: dict[C, tuple[int, ...]] = {
    C.AUTH: (1000, 1001, 1002, 1003, 1004, 1110, 1111, 1112, 1120, 1121, 1220, 1311, 1313),
    C.QUOTA_EXHAUSTED: (1113, 1304, 1308, 1309, 1310),
    C.NOT_FOUND: (1211, 1222),
    C.INVALID_REQUEST: (1210, 1212, 1213, 1214, 1215, 1231),
    C.CONTEXT_LENGTH: (1261,),
    C.CONTENT_POLICY: (1300, 1301),
    C.RATE_LIMIT: (1302, 1303),
    C.OVERLOADED: (1305, 1312),
    C.NETWORK: (1234,),
    C.SERVER_ERROR: (1200, 1221, 1230),
}
"""docs.bigmodel.cn error codes (field `code` of `error`)."""

_MINIMAX: dict[C, tuple[int, ...]] = {
    C.TIMEOUT: (1001,),
    C.RATE_LIMIT: (1002, 1039, 1041),
    C.AUTH: (1004, 2049),
    C.QUOTA_EXHAUSTED: (1008, 2056),
    C.SERVER_ERROR: (1000, 1013, 1024, 1033),
    C.CONTENT_POLICY: (1026, 1027),
    C.INVALID_REQUEST: (1042, 1043, 1044, 2013, 2037),
}
"""platform.minimax.io error codes (field `status_code` of `base_resp`)."""

_QIANFAN: dict[C, tuple[int, ...]] = {
    C.RATE_LIMIT: (4, 18, 336501, 336502, 336503),
    C.QUOTA_EXHAUSTED: (17, 19),
    C.AUTH: (6, 13, 14, 15, 100, 110, 111),
    C.NOT_FOUND: (3,),
    C.OVERLOADED: (336100,),
    C.CONTEXT_LENGTH: (336103, 336007),
    C.CONTENT_POLICY: (336104,),
    C.SERVER_ERROR: (1, 2, 336000),
    C.INVALID_REQUEST: (336001, 336002, 336003, 336005, 336006),
}
"""cloud.baidu.com Qianfan error codes (field `error_code`)."""

_SPARK: dict[C, tuple[int, ...]] = {
    C.CONTENT_POLICY: (10013, 10014, 10019, 10021),
    C.CONTEXT_LENGTH: (10907,),
    C.RATE_LIMIT: (10007, 11202, 11203),
    C.OVERLOADED: (10008, 10010, 10011, 10110, 10222),
    C.QUOTA_EXHAUSTED: (11201,),
    C.AUTH: (10015, 10016, 11200),
    C.INVALID_REQUEST: (10004, 10005, 10163),
}
"""xfyun.cn Spark error codes (field `code` of `header`)."""

VENDOR: tuple[tuple[frozenset[str], dict[int, C]], ...] = tuple(
    (frozenset(keys.split()), {code: kind for kind, codes in table.items() for code in codes})
    for keys, table in (
        ("status_code", _MINIMAX),
        ("error_code err_code", _QIANFAN),
        ("code", _ZHIPU),
        ("code", _SPARK),
    )
)
"""(names of the field, code -> class) per vendor."""


def http_signal(found: Evidence, outer: int | None) -> list[Signal]:
    """The signal of the innermost failing status: a gateway's 500 around an upstream 404 is a 404."""
    inner = max(found.statuses, key=lambda pair: pair[0], default=None)
    if inner is not None:
        # the last one of the deepest level: texts name the cause behind its wrapping
        inner = [pair for pair in found.statuses if pair[0] == inner[0]][-1]
    status = inner[1] if inner is not None else outer
    if status is None or not 400 <= status <= 599:
        return []
    default = (C.INVALID_REQUEST if status < 500 else C.SERVER_ERROR, VAGUE_STATUS)
    error_class, weight = HTTP.get(status, default)
    if status == 403 and "html" in found.flags:  # a firewall's page, whatever it says about connections
        weight = PLAIN + 2
    return [Signal(error_class, weight, inner[0] if inner else 0, f"HTTP {status}")]


def number_signals(found: Evidence) -> list[Signal]:
    """The signals of JSON-RPC, gRPC and vendor codes."""
    signals = []
    for key, value, _ in found.numbers:
        if value in JSON_RPC:
            error_class, weight = JSON_RPC[value]
            signals.append(Signal(error_class, weight, 1, f"JSON-RPC code {value}"))
        for keys, table in VENDOR:
            if key in keys and value in table:
                # Vendors share numbers (1300 is Zhipu's and Mistral's): clear words go first.
                signals.append(Signal(table[value], PLAIN + 1, 1, f"{key} {value}"))
    grpc = found.headers.get("grpc-status", "")
    if grpc.isascii() and grpc.isdigit() and int(grpc[:4]) in GRPC:
        signals.append(Signal(GRPC[int(grpc[:4])], PLAIN - 2, 0, f"grpc-status {grpc}"))
    return signals

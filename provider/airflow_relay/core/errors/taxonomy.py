"""The vocabulary of failures that every ring of Relay shares: classes, named sets and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ErrorClass(str, Enum):
    """What kind of failure an agent call or a task ended with."""

    RATE_LIMIT = "rate_limit"
    """The caller sent too much in a short window; the same call works later."""
    OVERLOADED = "overloaded"
    """The server has no capacity now, whoever asks (503, 529, model loading)."""
    TIMEOUT = "timeout"
    """Nobody answered in time: client, proxy or server deadline."""
    NETWORK = "network"
    """The connection failed or broke: DNS, TCP, TLS, cut stream."""
    SERVER_ERROR = "server_error"
    """The server broke down, or answered with something that is no answer."""
    CONTENT_POLICY = "content_policy"
    """A filter or a moderation rule blocked the input or the output."""
    REFUSAL = "refusal"
    """The model or agent itself declined."""
    AUTH = "auth"
    """Wrong or missing credentials, no permission, blocked account, region or address."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """Money, plan or a long window (day, week, month) is used up; a person has to act or wait long."""
    INVALID_REQUEST = "invalid_request"
    """The request itself is wrong and stays wrong."""
    CONTEXT_LENGTH = "context_length"
    """The request is larger than the model or the limit can ever take."""
    NOT_FOUND = "not_found"
    """The model, deployment, job or route does not exist for this caller."""
    CANCELLED = "cancelled"
    """Somebody stopped it; not retried by itself."""
    UNKNOWN = "unknown"
    """Nothing on the wire tells; retried."""


RETRYABLE: frozenset[ErrorClass] = frozenset(
    {
        ErrorClass.RATE_LIMIT,
        ErrorClass.OVERLOADED,
        ErrorClass.TIMEOUT,
        ErrorClass.NETWORK,
        ErrorClass.SERVER_ERROR,
        ErrorClass.UNKNOWN,
    }
)
"""Classes that may succeed when the same work is tried again."""

NOT_RETRYABLE: frozenset[ErrorClass] = frozenset(ErrorClass) - RETRYABLE
"""Classes for which trying again is waste: the item goes to the dead letters (cancelled: it just stops)."""

ITEM_LEVEL: frozenset[ErrorClass] = frozenset(
    {
        ErrorClass.CONTENT_POLICY,
        ErrorClass.REFUSAL,
        ErrorClass.INVALID_REQUEST,
        ErrorClass.CONTEXT_LENGTH,
    }
)
"""Failures that say something about one item and nothing about the health of the stage."""

SYSTEMIC: frozenset[ErrorClass] = frozenset(ErrorClass) - ITEM_LEVEL - {ErrorClass.CANCELLED}
"""Classes that a stage's breaker counts: every item would meet them."""

HINTED: frozenset[ErrorClass] = RETRYABLE | {ErrorClass.QUOTA_EXHAUSTED}
"""Classes for which waiting helps, so that a wait hint of the server means something."""


@dataclass(frozen=True)
class Verdict:
    """What `classify` decided. Immutable, safe to log and to store."""

    error_class: ErrorClass
    """The class of the failure."""
    retry_after: float | None = None
    """Seconds that the server asks to wait, from the moment of its answer; None when it does not say."""
    reason: str = ""
    """One line for people: the rule that decided and the server's own words, without secrets."""

    @property
    def retryable(self) -> bool:
        """Whether the same work may succeed when it is tried again."""
        return self.error_class in RETRYABLE

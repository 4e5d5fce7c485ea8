"""What a protocol raises when a reply is no news about the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EXCERPT = 300


class InvalidRequest(ValueError):  # noqa: N818 - says what is wrong, like the standard library's LookupError
    """A request or a setting that the protocol refuses before anything is sent. Retrying it cannot help."""


class ReplyError(Exception):
    """An HTTP reply that says nothing definite about a job's state.

    ``status`` (int), ``headers`` and ``body`` (str) are kept as received, so that the error classifier can
    read them: ``classify(status=e.status, headers=e.headers, body=e.body)``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: str = "",
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        # Cookies are the client's affair, and this gets logged.
        self.headers = {k: v for k, v in (headers or {}).items() if k.lower() != "set-cookie"}
        self.body = body
        self.code = code
        """The peer's own error code where the protocol has one (a JSON-RPC code, ``error.code``)."""

    def __str__(self) -> str:
        excerpt = " ".join(self.body.split())
        if len(excerpt) > _EXCERPT:
            excerpt = excerpt[:_EXCERPT] + "…"
        return f"{self.message} (HTTP {self.status})" + (f": {excerpt}" if excerpt else "")

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call cls(message) and lose the keyword-only parts.
        state = {name: value for name, value in self.__dict__.items() if name != "message"}
        return _rebuild, (type(self), self.message, state)


class TransientReply(ReplyError):  # noqa: N818 - an outcome of a call
    """Try the same call again: 408, 425, 429, 5xx, a proxy's page, an empty or cut body.

    ``retry_after`` is the server's wish in seconds, None when it gave none. ``ambiguous`` is True when the
    reply belongs to a submit that may nevertheless have created the job: look it up, or send it again only
    under the same idempotency key.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, ambiguous: bool = False, **reply: Any
    ) -> None:
        super().__init__(message, **reply)
        self.retry_after = retry_after
        self.ambiguous = ambiguous


class JobRejected(ReplyError):  # noqa: N818 - an outcome of a call
    """The server understood and refused: the same call will be refused again (400, 401, 403, 422, …)."""


def _rebuild(cls: type[ReplyError], message: str, state: dict[str, Any]) -> ReplyError:
    error = cls(message, **state)
    error.__dict__.update(state)
    return error

"""HTTP as plain values: what to send and what came back. No client, no socket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias

JSON: TypeAlias = Any
"""Whatever ``json.loads`` gives: dict, list, str, int, float, bool, None."""


class Headers(Mapping[str, str]):
    """Reply headers; names compare without case, repeated ones are joined with a comma (RFC 9110 §5.3)."""

    def __init__(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None = None) -> None:
        self._values: dict[str, str] = {}
        # A client's multi-dict yields repeated names from items(); a plain dict simply has none.
        for name, value in values.items() if isinstance(values, Mapping) else (values or ()):
            key, text = _header_text(name).lower(), _header_text(value)
            self._values[key] = f"{self._values[key]}, {text}" if key in self._values else text

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({sorted(self._values)})"  # names only: values may be secret


def _header_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class HttpCall:
    """One request to send. Authentication is not in it; the connection's HTTP client adds that."""

    method: str
    path: str
    """Below the connection's base, or an absolute URL of the same origin. Resolve with ``urls.join``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    json: JSON = None
    """Body to encode as JSON; None = no body."""


@dataclass(frozen=True)
class HttpReply:
    """One reply as received. Redirects must not be followed by the client: protocols read them."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str = b""
    url: str = ""
    """The URL that was asked; needed to resolve a relative ``Location`` and to compare origins."""
    received: datetime | None = None
    """When, aware; a ``Retry-After`` date counts from it where the server does not say its own time."""

    def __post_init__(self) -> None:
        if not isinstance(self.headers, Headers):
            object.__setattr__(self, "headers", Headers(self.headers))

    @cached_property
    def text(self) -> str:
        """The body as text; undecodable bytes become U+FFFD."""
        return self.body if isinstance(self.body, str) else self.body.decode("utf-8", "replace")

    def json(self) -> JSON:
        """The parsed body, or None when the body is no complete JSON document (HTML, cut, empty)."""
        return self._parsed

    def json_object(self) -> dict[str, Any] | None:
        """The parsed body when it is a JSON object, else None."""
        return self._parsed if isinstance(self._parsed, dict) else None

    def is_html(self) -> bool:
        """Whether this is a page for people: a proxy, a portal or an error page answered."""
        return self._parsed is None and (
            "text/html" in self.headers.get("content-type", "").lower() or self.text.lstrip()[:1] == "<"
        )

    @cached_property
    def _parsed(self) -> JSON:
        body = self.body.removeprefix("\ufeff") if isinstance(self.body, str) else self.body
        try:
            # Python servers emit NaN, which no database takes as JSON: it means "no value".
            return json.loads(body, parse_constant=lambda _name: None)
        except (ValueError, RecursionError):
            return None

"""Addresses: joining a connection's base with a path, and keeping credentials on their own host."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urljoin, urlsplit

from airflow_relay.protocols.errors import InvalidRequest

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_VERSION = re.compile(r"v\d+\w*")


class ForeignOrigin(InvalidRequest):
    """An address on another scheme, host or port than the connection's: credentials do not go there."""


def base_url(*, host: str, scheme: str | None = None, port: int | None = None) -> str:
    """The base address from a connection's parts, without a trailing slash.

    :param host: host name, IPv6 address or whole URL, with or without a path prefix.
    :param scheme: used when ``host`` has none; ``http`` when both have none.
    :param port: used when ``host`` has none.
    :raises InvalidRequest: no host, another scheme than http or https, a bad port, user data in the address.
    """
    text = host.strip()
    if not _ABSOLUTE.match(text):
        if text.count(":") > 1 and not text.startswith("["):
            text = f"[{text}]"  # a bare IPv6 address, as Airflow connections hold it
        text = f"{scheme or 'http'}://{text.lstrip('/')}"
    parts = _split(text)
    netloc = parts.netloc
    if port is not None and parts.port is None:
        netloc = f"{netloc.rstrip(':')}:{port}"
    return _checked(parts._replace(netloc=netloc, path=parts.path.rstrip("/"))).geturl()


def join(base: str, path: str) -> str:
    """The address of ``path`` below ``base``; slashes at the seam do not matter.

    An absolute ``path`` is returned as it is when it has the base's origin. A version segment that ends the
    base and begins the path (``https://host/v1`` and ``/v1/responses``) is not doubled. A query in the base
    is kept on every address.

    :raises ForeignOrigin: ``path`` is absolute and has another origin.
    :raises InvalidRequest: an address that HTTP clients read in different ways (dot segments, backslashes,
        spaces, user data), or no http(s) address at all.
    """
    root = _split(base)
    if _ABSOLUTE.match(path):
        if not same_origin(base, path):
            raise ForeignOrigin(f"{_origin_text(path)} is not the connection's {_origin_text(base)}")
        return _split(path)._replace(fragment="").geturl()
    _refuse_unsafe(path)
    below, _, query = path.partition("#")[0].partition("?")
    segments = [s for s in root.path.rstrip("/").split("/") if s]
    first, _, rest = below.lstrip("/").partition("/")
    tail = below.lstrip("/")
    if segments and segments[-1] == first and _VERSION.fullmatch(first):
        tail = rest
    joined = root._replace(
        path="/" + "/".join([*segments, tail]) if tail or segments else "",
        query="&".join(filter(None, (root.query, query))),
        fragment="",
    )
    if not tail:
        joined = joined._replace(path=joined.path.rstrip("/"))
    _refuse_dots(joined.path)
    return joined.geturl()


def same_origin(one: str, other: str) -> bool:
    """Whether two absolute URLs have the same scheme, host and port (RFC 6454); False when one is no URL."""
    try:
        return _origin(_split(one)) == _origin(_split(other))
    except InvalidRequest:
        return False


def resolve(location: str, asked: str) -> str:
    """The address that a reply's ``Location`` means, read against the URL that was asked (RFC 9110 §10.2.2).

    A server behind a TLS proxy names itself with ``http``; the same host is then kept on ``https``.

    :raises ForeignOrigin: it leads to another origin.
    :raises InvalidRequest: it is no usable address.
    """
    _refuse_unsafe(location)
    here = _split(asked)
    try:
        there = _split(urljoin(asked, location))
    except ValueError as e:
        raise InvalidRequest(f"not an address: {location!r}") from e
    if _origin(here) == ("https", here.hostname, 443) and _origin(there) == ("http", here.hostname, 80):
        there = there._replace(scheme="https", netloc=here.netloc)
    target = there._replace(fragment="").geturl()
    if not same_origin(asked, target):
        raise ForeignOrigin(f"{_origin_text(target)} is not the connection's {_origin_text(asked)}")
    _refuse_dots(there.path)
    return target


def _split(url: str) -> SplitResult:
    _refuse_unsafe(url)
    try:
        return _checked(urlsplit(url))
    except ValueError as e:
        raise e if isinstance(e, InvalidRequest) else InvalidRequest(f"not an address: {url!r} ({e})") from e


def _checked(parts: SplitResult) -> SplitResult:
    if parts.scheme not in _DEFAULT_PORTS:
        raise InvalidRequest(
            f"an agent server is reached by http or https, not {parts.scheme or 'nothing'!r}"
        )
    if not parts.hostname:
        raise InvalidRequest("the address has no host")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(
            "user and password belong into the connection's own fields, not into the address"
        )
    _ = parts.port  # raises ValueError when it is no port number
    return parts


def _refuse_unsafe(url: str) -> None:
    if _UNSAFE.search(url):
        raise InvalidRequest("an address must not hold spaces, control characters or backslashes")


def _refuse_dots(path: str) -> None:
    decoded = path.lower().replace("%2e", ".")
    if any(segment in {".", ".."} for segment in decoded.split("/")):
        raise InvalidRequest(f"an address must not hold dot segments: {path!r}")


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]


def _origin_text(url: str) -> str:
    """Scheme, host and port for a message: the rest of an address may hold a token."""
    try:
        scheme, host, port = _origin(_split(url))
    except InvalidRequest:
        return "an unusable address"
    return f"{scheme}://{host}:{port}"

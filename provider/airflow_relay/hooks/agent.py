"""The agent server behind an Airflow connection: one reading of it, for submits and for polls alike.

Airflow's HTTP provider has two hooks on two libraries (requests, aiohttp) that understand a connection
differently: client certificates, proxies and ``trust_env`` work in the one and are dropped by the other. A
job would be submitted and then never be polled. So both sides here are httpx clients made from the same
settings, with the HTTP provider's names for them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

import httpx
from airflow.sdk import BaseHook
from typing_extensions import Self

from airflow_relay.clock import utcnow
from airflow_relay.compat import in_task_process
from airflow_relay.protocols.base import HttpCall, HttpReply, InvalidRequest
from airflow_relay.protocols.urls import base_url, join

AGENT_CONN_ID: Final = "relay_agent"
CONNECT_TIMEOUT: Final = 15.0
"""Seconds until a connection stands."""
READ_TIMEOUT: Final = 120.0
"""Seconds of silence that end a call. Generous: a submit that is given up may have created the job."""

_SCHEMES: Final = frozenset({"http", "https"})
_NEUTRAL: Final[Mapping[str, Any]] = {
    "allow_redirects": False,
    "check_response": True,
    "stream": False,
    "srv_lookup": False,
}
"""Settings of the HTTP provider that Relay cannot vary, with the only value that it accepts."""
_CURES: Final = {
    "allow_redirects": "redirects are never followed, because credentials would go along",
    "max_redirects": "redirects are never followed, because credentials would go along",
    "check_response": "Relay reads every status itself",
    "stream": "Relay decides itself what it reads",
    "srv_lookup": "give the server's own address",
    "auth_type": "use login and password, a password alone (bearer token), or a header",
}
_SETTINGS: Final = frozenset(
    {
        "cert",
        "headers",
        "protocol",
        "proxies",
        "proxy",
        "timeout",
        "token",
        "trust_env",
        "verify",
        "verify_ssl",
    }
)


class AgentConnectionError(ValueError):
    """The connection cannot be used as it is; the text names the setting and the cure. Nothing was sent."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What a connection says, checked. Its repr holds no secret."""

    conn_id: str
    base: str
    """Scheme, host, port and path prefix."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of basic authentication."""
    timeout: float = READ_TIMEOUT
    verify: bool | str = True
    """Whether the server's certificate is checked; a path: against these authorities."""
    cert: tuple[str, ...] = ()
    """Client certificate: one file, or certificate and key."""
    proxy: str | None = field(default=None, repr=False)
    trust_env: bool = True
    """Whether HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE count."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the agent protocol that are facts about this server."""

    def client_arguments(self, *, timeout: float | None = None) -> dict[str, Any]:
        """What both clients are made with.

        :raises AgentConnectionError: a certificate file cannot be read.
        """
        return {
            "auth": None if self.login is None else httpx.BasicAuth(*self.login),
            "headers": {"User-Agent": "airflow-relay", **self.headers},
            "timeout": httpx.Timeout(timeout or self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout)),
            "verify": self._tls(),
            "proxy": self.proxy,
            "trust_env": self.trust_env,
            "follow_redirects": False,
        }

    def _tls(self) -> ssl.SSLContext:
        try:
            if isinstance(self.verify, str):
                where = "capath" if Path(self.verify).is_dir() else "cafile"
                context = ssl.create_default_context(**{where: self.verify})  # type: ignore[arg-type]
            else:
                context = httpx.create_ssl_context(verify=self.verify, trust_env=self.trust_env)
            if self.cert:
                context.load_cert_chain(*self.cert)
        except (OSError, ssl.SSLError) as error:
            raise AgentConnectionError(
                f"Connection {self.conn_id!r}: the files of verify or cert cannot be used ({error})."
            ) from error
        return context

    def url(self, call: HttpCall) -> str:
        """The address of a call.

        :raises ForeignOrigin: it leads to another host, where the credentials must not go.
        """
        return join(self.base, call.path)


class AgentClient:
    """The connection's server, called from a worker."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self._http = httpx.Client(**settings.client_arguments())

    def send(self, call: HttpCall) -> HttpReply:
        """Send one call and return the whole reply, whatever its status.

        :raises httpx.TransportError: there is no reply.
        """
        url = self.settings.url(call)
        reply = self._http.request(call.method, url, headers=dict(call.headers), json=call.json)
        return HttpReply(reply.status_code, reply.headers, reply.content, url, utcnow())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AgentHook(BaseHook):
    """An agent server as an Airflow connection.

    Type ``relay_agent`` or ``http``. Host: name or URL, with a path prefix where the server has one. Login
    and password: basic authentication; a password alone: bearer token. Extra: ``headers``, ``token``,
    ``timeout`` (seconds), ``verify`` (true, false, path), ``cert`` (path, or [certificate, key]), ``proxy``
    or ``proxies``, ``trust_env``, ``protocol`` (settings of the protocol). Names with a hyphen or a capital
    are headers, as in the HTTP provider.

    :param agent_conn_id: the connection's id.
    """

    conn_name_attr = "agent_conn_id"
    default_conn_name = AGENT_CONN_ID
    conn_type = "relay_agent"
    hook_name = "Relay agent server"

    def __init__(self, agent_conn_id: str = AGENT_CONN_ID) -> None:
        super().__init__()
        self.agent_conn_id = agent_conn_id

    def settings(self) -> AgentSettings:
        """The connection, read and checked.

        :raises AgentConnectionError: names the setting.
        """
        return settings_of(self._connection(), self.agent_conn_id)

    async def asettings(self) -> AgentSettings:
        """The same without blocking the event loop."""
        return settings_of(await self.aget_connection(self.agent_conn_id), self.agent_conn_id)

    def get_conn(self) -> AgentClient:
        """A client; close it after use."""
        return AgentClient(self.settings())

    def test_connection(self) -> tuple[bool, str]:
        """For the button in Airflow's connection form: any answer of the server will do."""
        try:
            with self.get_conn() as client:
                reply = client.send(HttpCall("GET", "/"))
        except (AgentConnectionError, httpx.HTTPError) as error:
            return False, str(error)
        return True, f"The server answered with HTTP {reply.status}."

    def _connection(self) -> Any:
        if in_task_process():
            return self.get_connection(self.agent_conn_id)
        from airflow.models import Connection  # noqa: PLC0415 - forbidden in tasks

        return Connection.get_connection_from_secrets(self.agent_conn_id)  # noqa: AIR311 - see compat


def settings_of(connection: Any, conn_id: str) -> AgentSettings:
    """Read an Airflow connection.

    :raises AgentConnectionError: an unknown, unusable or contradictory setting; named, with the cure.
    """
    extra = dict(connection.extra_dejson)
    loose = {name: extra.pop(name) for name in list(extra) if _is_header(name)}
    _refuse_unknown(conn_id, extra)
    headers = _headers(conn_id, {**loose, **_mapping(conn_id, extra, "headers")})
    base = _base(connection, conn_id)
    login = _authentication(connection, conn_id, extra.get("token"), headers)
    return AgentSettings(
        conn_id=conn_id,
        base=base,
        headers=headers,
        login=login,
        timeout=_timeout(conn_id, extra.get("timeout")),
        verify=_verify(conn_id, extra),
        cert=_cert(conn_id, extra.get("cert")),
        proxy=_proxy(conn_id, extra, base),
        trust_env=_flag(conn_id, "trust_env", extra.get("trust_env", True)),
        protocol=_mapping(conn_id, extra, "protocol"),
    )


def _is_header(name: str) -> bool:
    """``Authorization``, ``x-api-key``: what the HTTP provider would send as a header, but no misspelling."""
    return "-" in name or name[:1].isupper()


def _refuse_unknown(conn_id: str, extra: Mapping[str, Any]) -> None:
    for name, value in extra.items():
        if name in _SETTINGS or value is None:
            continue
        if name in _NEUTRAL and _as_bool(value) is _NEUTRAL[name]:
            continue
        cure = _CURES.get(name, f"there are {', '.join(sorted(_SETTINGS))}; put headers under 'headers'")
        raise AgentConnectionError(f"Connection {conn_id!r}: extra {name!r} is not supported: {cure}.")
    for one, other in (("verify", "verify_ssl"), ("proxy", "proxies")):
        if one in extra and other in extra and extra[one] != extra[other]:
            raise AgentConnectionError(
                f"Connection {conn_id!r}: extras {one!r} and {other!r} contradict each other: keep one."
            )


def _base(connection: Any, conn_id: str) -> str:
    kind = (connection.conn_type or "").replace("-", "_").lower()
    if kind not in {"relay_agent", *_SCHEMES}:
        raise AgentConnectionError(
            f"Connection {conn_id!r} has the type {connection.conn_type!r}: an agent server is reached by a "
            "connection of type 'relay_agent' or 'http'."
        )
    # In a connection that is given as a URI, Airflow calls what follows the first slash the schema.
    schema = connection.schema or ""
    scheme = schema.lower() if schema.lower() in _SCHEMES else "https" if kind == "https" else "http"
    prefix = "" if schema.lower() in _SCHEMES else schema
    try:
        base = base_url(host=connection.host or "", scheme=scheme, port=connection.port)
        return join(base, quote(prefix, safe="/")) if prefix else base
    except InvalidRequest as error:
        raise AgentConnectionError(f"Connection {conn_id!r}: {error}.") from error


def _authentication(
    connection: Any, conn_id: str, token: Any, headers: dict[str, str]
) -> tuple[str, str] | None:
    """Put a bearer token into the headers, or return what basic authentication needs."""
    user, password = connection.login or "", connection.password or ""
    given = [
        name
        for name, is_there in (
            ("login or password", bool(user or password)),
            ("extra 'token'", bool(token)),
            ("header 'Authorization'", any(name.lower() == "authorization" for name in headers)),
        )
        if is_there
    ]
    if len(given) > 1:
        raise AgentConnectionError(
            f"Connection {conn_id!r}: {' and '.join(given)} contradict each other: keep one."
        )
    if token is not None and not isinstance(token, str):
        raise AgentConnectionError(f"Connection {conn_id!r}: extra 'token' must be text.")
    if token or (password and not user):
        headers["Authorization"] = f"Bearer {token or password}"
        return None
    return (user, password) if user else None


def _headers(conn_id: str, given: Mapping[str, Any]) -> dict[str, str]:
    for name, value in given.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise AgentConnectionError(f"Connection {conn_id!r}: header {name!r} must be text.")
        if not str(value).isprintable() or not str(value).isascii():
            raise AgentConnectionError(f"Connection {conn_id!r}: header {name!r} must be printable ASCII.")
    return {name: str(value) for name, value in given.items()}


def _mapping(conn_id: str, extra: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = extra.get(name) or {}
    if not isinstance(value, dict):
        raise AgentConnectionError(f"Connection {conn_id!r}: extra {name!r} must be an object.")
    return value


def _timeout(conn_id: str, value: Any) -> float:
    if value is None:
        return READ_TIMEOUT
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise AgentConnectionError(f"Connection {conn_id!r}: extra 'timeout' must be seconds, up to 3600.")
    return float(value)


def _verify(conn_id: str, extra: Mapping[str, Any]) -> bool | str:
    value = extra.get("verify", extra.get("verify_ssl"))
    flag = True if value is None else _as_bool(value)
    if flag is not None:
        return flag
    return _file(conn_id, "verify", value)


def _cert(conn_id: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) not in (1, 2):
        raise AgentConnectionError(f"Connection {conn_id!r}: extra 'cert' must be a path or [path, path].")
    return tuple(_file(conn_id, "cert", part) for part in parts)


def _file(conn_id: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not Path(value).exists():
        raise AgentConnectionError(
            f"Connection {conn_id!r}: extra {name!r} names {value!r}, which is no file on this machine. "
            "Workers and triggerers both need it."
        )
    return value


def _proxy(conn_id: str, extra: Mapping[str, Any], base: str) -> str | None:
    value = extra.get("proxies", extra.get("proxy"))
    if isinstance(value, dict):
        unknown = sorted(set(value) - _SCHEMES)
        if unknown:
            raise AgentConnectionError(f"Connection {conn_id!r}: 'proxies' has {unknown}, not http or https.")
        value = value.get(base.partition(":")[0])
    if value is None or (isinstance(value, str) and value.startswith(("http://", "https://"))):
        return value
    raise AgentConnectionError(f"Connection {conn_id!r}: a proxy must be an http or https URL.")


def _flag(conn_id: str, name: str, value: Any) -> bool:
    flag = _as_bool(value)
    if flag is None:
        raise AgentConnectionError(f"Connection {conn_id!r}: extra {name!r} must be true or false.")
    return flag


def _as_bool(value: Any) -> bool | None:
    """True and false, also as text, since connections are typed by hand."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None

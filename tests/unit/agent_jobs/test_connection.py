"""What a connection may say, and what is refused before anything is sent."""

from __future__ import annotations

import json
import ssl
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from airflow_relay.hooks.agent import AgentClient, AgentConnectionError, settings_of
from airflow_relay.protocols.base import HttpCall
from airflow_relay.protocols.urls import ForeignOrigin


def connection(**fields: Any):
    given = {"conn_type": "http", "host": "agents.example", "schema": "", "port": None, **fields}
    given.setdefault("login", None)
    given.setdefault("password", None)
    return SimpleNamespace(**{**given, "extra_dejson": given.pop("extra", {})})


def read(**fields: Any):
    return settings_of(connection(**fields), "relay_agent")


@pytest.mark.parametrize(
    ("fields", "base"),
    [
        ({}, "http://agents.example"),
        ({"schema": "https"}, "https://agents.example"),
        ({"conn_type": "https"}, "https://agents.example"),
        ({"port": 8443, "schema": "https"}, "https://agents.example:8443"),
        ({"host": "https://agents.example/v1/"}, "https://agents.example/v1"),
        ({"host": "https://agents.example/v1", "port": 444}, "https://agents.example:444/v1"),
        ({"host": "agents.example/prefix", "schema": "https"}, "https://agents.example/prefix"),
        ({"schema": "v1"}, "http://agents.example/v1"),  # a URI's path, as Airflow reads it
        ({"host": "::1", "port": 80}, "http://[::1]:80"),
        ({"conn_type": "relay_agent", "host": "10.0.0.1"}, "http://10.0.0.1"),
    ],
)
def test_the_base_address(fields, base):
    assert read(**fields).base == base


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "host"),
        ({"conn_type": "postgres"}, "type"),
        ({"host": "ftp://agents.example"}, "http"),
        ({"host": "https://me:pw@agents.example"}, "password"),
        ({"extra": {"verify": "/no/such/file"}}, "verify"),
        ({"extra": {"cert": "/no/such/file"}}, "cert"),
        ({"extra": {"cert": 3}}, "cert"),
        ({"extra": {"timeout": "soon"}}, "timeout"),
        ({"extra": {"timeout": True}}, "timeout"),
        ({"extra": {"proxy": "socks5://x"}}, "proxy"),
        ({"extra": {"proxies": {"ftp": "http://x"}}}, "proxies"),
        ({"extra": {"headers": ["a"]}}, "headers"),
        ({"extra": {"headers": {"X-A": "two\nlines"}}}, "X-A"),
        ({"extra": {"trust_env": "maybe"}}, "trust_env"),
        ({"extra": {"verify": False, "verify_ssl": True}}, "contradict"),
        ({"extra": {"token": "t"}, "password": "p"}, "contradict"),
        ({"extra": {"Authorization": "Bearer t"}, "login": "me"}, "contradict"),
        ({"extra": {"token": 5}}, "token"),
        ({"extra": {"protocol": "a2a"}}, "protocol"),
        ({"extra": {"auth_type": "Digest"}}, "auth_type"),
        ({"extra": {"check_response": False}}, "check_response"),
    ],
)
def test_what_cannot_work_is_refused_by_name(fields, named):
    with pytest.raises(AgentConnectionError, match=named):
        read(**fields)


def test_harmless_settings_of_the_http_provider_are_accepted():
    read(extra={"allow_redirects": False, "check_response": "true", "stream": False, "srv_lookup": "false"})


def test_a_password_alone_is_a_bearer_token():
    assert read(password="t").headers["Authorization"] == "Bearer t"


def test_a_login_is_basic_authentication():
    settings = read(login="me", password="p")
    assert settings.login == ("me", "p")
    assert "Authorization" not in settings.headers


def test_client_certificate_and_authorities_reach_the_tls_context(tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("not a certificate")
    settings = read(schema="https", extra={"verify": str(bundle)})
    with pytest.raises(AgentConnectionError, match="verify or cert"):
        settings.client_arguments()
    assert read(schema="https").client_arguments()["verify"].verify_mode is ssl.CERT_REQUIRED


def test_the_repr_shows_no_secret():
    settings = read(
        login="me",
        password="hidden1",
        extra={"X-Key": "hidden2", "proxy": "http://u:hidden3@p"},
    )
    assert "hidden" not in repr(settings)


def test_credentials_do_not_go_to_another_host():
    client = AgentClient(read(password="t"))
    with client, pytest.raises(ForeignOrigin):
        client.send(HttpCall("GET", "http://elsewhere.example/jobs/1"))


def test_redirects_are_reported_and_not_followed():
    asked = []

    def handler(request):
        asked.append(str(request.url))
        return httpx.Response(302, headers={"Location": "http://elsewhere.example/"})

    client = AgentClient(read(password="t"))
    client._http = httpx.Client(transport=httpx.MockTransport(handler))
    with client:
        assert client.send(HttpCall("GET", "/jobs/1")).status == 302
    assert asked == ["http://agents.example/jobs/1"]


def test_the_extra_of_a_real_airflow_connection_is_understood(monkeypatch):
    from airflow_relay.hooks.agent import AgentHook

    text = json.dumps(
        {"conn_type": "relay_agent", "host": "h", "extra": {"protocol": {"idempotency": True}, "timeout": 30}}
    )
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", text)
    settings = AgentHook("other").settings()
    assert settings.protocol == {"idempotency": True}
    assert settings.timeout == 30

"""The page below an application like Airflow's, with Airflow's own login check in force."""

from __future__ import annotations

import pytest
from airflow.api_fastapi.app import create_auth_manager
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_relay.plugin import app as web
from airflow_relay.plugin.relay_plugin import RelayPlugin

CLOSED = [
    ("GET", "/relay/"),
    ("GET", "/relay/items/1"),
    ("GET", "/relay/stages/line/first"),
    ("GET", "/relay/static/relay.css"),
    ("POST", "/relay/items/1/redrive"),
    ("POST", "/relay/items/1/discard"),
]


@pytest.fixture
def mounted(ledger, monkeypatch):
    monkeypatch.setattr(web, "get_ledger", lambda: ledger)
    create_auth_manager()
    root = FastAPI()
    (entry,) = RelayPlugin.fastapi_apps
    root.mount(entry["url_prefix"], entry["app"])
    with TestClient(root) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_without_a_login_airflow_refuses(mounted, method, path):
    reply = mounted.request(method, path, json={} if method == "POST" else None)
    assert (reply.status_code, reply.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.parametrize(("method", "path"), CLOSED)
@pytest.mark.parametrize("carrier", ["Authorization", "Cookie"])
def test_a_forged_login_is_refused_by_header_and_by_cookie(mounted, method, path, carrier):
    value = "Bearer forged" if carrier == "Authorization" else "_token=forged"
    reply = mounted.request(method, path, json={} if method == "POST" else None, headers={carrier: value})
    assert reply.status_code == 403


def test_health_needs_no_login(mounted):
    reply = mounted.get("/relay/health")
    assert reply.status_code == 200
    assert reply.json()["status"] == "ok"

"""The plugin as Airflow loads it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from airflow.sdk.configuration import conf
from fastapi.testclient import TestClient

from airflow_relay import links
from airflow_relay.ledger import runs
from airflow_relay.plugin.relay_plugin import RelayPlugin


def test_the_page_is_mounted_where_its_links_lead():
    (mounted,) = RelayPlugin.fastapi_apps
    assert mounted["url_prefix"] == links.PREFIX


def test_the_view_has_what_airflow_needs_to_show_it():
    (view,) = RelayPlugin.external_views
    assert (view["url_route"], view["destination"]) == ("relay", "nav")
    assert view["href"].endswith("/relay/")


@pytest.mark.parametrize(
    ("base", "href", "log"),
    [
        ("http://localhost:8080", "/relay/", "http://localhost:8080/relay/items/7"),
        ("https://ops.example/airflow/", "/airflow/relay/", "https://ops.example/airflow/relay/items/7"),
    ],
)
def test_links_keep_the_prefix_that_airflow_is_served_under(monkeypatch, base, href, log):
    monkeypatch.setattr(conf, "get", lambda *_a, **_k: base)
    assert f"{links.base_path()}{links.PREFIX}/" == href
    assert links.item_log(7) == log


def test_the_mounted_application_is_the_page(monkeypatch):
    (mounted,) = RelayPlugin.fastapi_apps
    reply = TestClient(mounted["app"]).get("/")
    assert reply.status_code == 401


def test_loading_the_plugin_loads_no_web_framework():
    code = (
        "import sys, airflow.plugins_manager; before = set(sys.modules); "
        "import airflow_relay.plugin.relay_plugin; "
        "new = set(sys.modules) - before; "
        "sys.exit(any(m.startswith(('airflow_relay.plugin.app', 'airflow_relay.ledger')) for m in new))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_button_of_a_run_leads_to_its_item(drive, ledger):
    item = drive.item("second-in-line")
    with ledger.read() as tx:
        run = runs.newest(tx, item.id)
    link = links.ItemLogLink().get_link(SimpleNamespace(served_run=run), ti_key=None)
    assert link.endswith(f"/relay/items/{item.id}")
    assert links.ItemLogLink().get_link(SimpleNamespace(served_run=None), ti_key=None) == ""


def test_the_button_of_a_task_leads_to_the_run_that_it_started(drive, ledger):
    item = drive.item("second-in-line")
    with ledger.read() as tx:
        run = runs.newest(tx, item.id)
    link = links.TriggeredRunLink().get_link(SimpleNamespace(triggered_run=run), ti_key=None)
    assert link.endswith(f"/dags/{run.dag_id}/runs/{run.run_id}")
    assert links.TriggeredRunLink().get_link(SimpleNamespace(triggered_run=None), ti_key=None) == ""

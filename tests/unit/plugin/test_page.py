"""The page inside Airflow: who gets in, what they see, and that reading changes nothing."""

from __future__ import annotations

from datetime import timedelta
from html.parser import HTMLParser

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import func, select

from airflow_relay.clock import utcnow
from airflow_relay.core.states import ItemState
from airflow_relay.core.watch import SWEEP, TICK
from airflow_relay.ledger import governing, items
from airflow_relay.ledger.schema import metadata
from airflow_relay.plugin import app as web
from support.page import NASTY, as_user

ROUTES = [
    (route.path, method)
    for route in web.app.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods)
]
CLOSED = [(path, method) for path, method in ROUTES if path != "/health"]


def filled(path: str, item_id: int) -> str:
    return (
        path.replace("{item_id}", str(item_id))
        .replace("{pipeline}", "line")
        .replace("{stage}", "first")
        .replace("{name}", "relay.css")
    )


def counts(ledger):
    with ledger.read() as tx:
        return {
            t.name: tx.conn.execute(select(func.count()).select_from(t)).scalar()
            for t in metadata.tables.values()
        }


# Who gets in


def test_the_list_of_routes_is_what_was_reviewed():
    assert set(ROUTES) == {
        ("/health", "GET"),
        ("/", "GET"),
        ("/stages/{pipeline}/{stage}", "GET"),
        ("/items/{item_id}", "GET"),
        ("/static/{name}", "GET"),
        ("/items/{item_id}/redrive", "POST"),
        ("/items/{item_id}/discard", "POST"),
    }


@pytest.mark.parametrize(("path", "method"), CLOSED)
def test_field_report_65_every_route_but_health_asks_for_a_login(client, drive, path, method):
    reply = client.request(method, filled(path, drive.item(NASTY).id), json={} if method == "POST" else None)
    assert reply.status_code == 401
    assert NASTY not in reply.text


@pytest.mark.parametrize(("path", "method"), CLOSED)
def test_a_bad_token_is_refused(client, drive, path, method):
    reply = client.request(method, filled(path, drive.item(NASTY).id), headers=as_user("forged"))
    assert reply.status_code == 403


@pytest.mark.parametrize(("path", "method"), CLOSED)
def test_a_user_who_may_not_read_dags_is_refused(client, drive, path, method):
    reply = client.request(method, filled(path, drive.item(NASTY).id), headers=as_user("nobody"))
    assert reply.status_code == 403


@pytest.mark.parametrize(("path", "method"), [r for r in CLOSED if r[1] == "GET"])
def test_a_viewer_may_read_everything(client, drive, path, method):
    reply = client.request(method, filled(path, drive.item(NASTY).id), headers=as_user("viewer"))
    assert reply.status_code == 200


def test_there_is_no_description_of_the_application_without_login(client):
    assert {client.get(p).status_code for p in ("/docs", "/redoc", "/openapi.json")} == {404}


# What they see


def test_a_user_sees_only_the_stages_whose_dags_they_may_read(client, drive):
    page = client.get("/", headers=as_user("outsider")).text
    assert "loop.draft" in page
    assert "line.first" not in page
    assert "script&gt;alert" not in page


def test_a_stage_that_a_user_may_not_read_is_refused(client, drive):
    assert client.get("/stages/line/first", headers=as_user("outsider")).status_code == 403


def test_an_item_that_a_user_may_not_read_looks_like_one_that_is_not_there(client, drive):
    hidden = client.get(f"/items/{drive.item(NASTY).id}", headers=as_user("outsider"))
    missing = client.get("/items/424242", headers=as_user("outsider"))
    assert (hidden.status_code, hidden.text) == (missing.status_code, missing.text) == (404, missing.text)


def test_the_front_page_shows_dead_letters_and_what_waits(client, drive):
    drive.intake("third-in-line")  # one slot: one of the two runs, the other waits for it
    page = client.get("/", headers=as_user("viewer")).text
    assert "first failed (auth)" in page
    assert f"/items/{drive.item(NASTY).id}" in page
    assert "line.first" in page


def test_a_stage_says_why_each_item_waits(client, drive):
    drive.intake("third-in-line")
    page = client.get("/stages/line/first", headers=as_user("viewer")).text
    assert "third-in-line" in page
    assert "<b>slot</b>" in page


def test_an_item_has_its_runs_with_links_and_its_log_in_order(client, drive):
    page = client.get(f"/items/{drive.item(NASTY).id}", headers=as_user("viewer")).text
    assert "/dags/line__first/runs/relay:line:first:" in page
    assert page.index("Registered, ready for first") < page.index("Granted first (grant 1)")


class Markup(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts = []
        self.handlers = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("path", ["/", "/stages/line/first", "/items/{item_id}"])
def test_a_key_with_markup_in_it_stays_text(client, drive, path):
    reply = client.get(filled(path, drive.item(NASTY).id), headers=as_user("admin"))
    assert "script&gt;alert(1)" in reply.text
    assert Markup(reply.text).scripts == ["/relay/static/relay.js"]
    assert Markup(reply.text).handlers == []


def test_pages_forbid_what_they_do_not_need(client, drive):
    reply = client.get("/", headers=as_user("viewer"))
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'self'" in policy  # Airflow shows it in a frame of its own
    assert reply.headers["cache-control"] == "no-store"


def test_a_static_file_is_one_of_two(client):
    for name in ("relay.css", "relay.js"):
        assert client.get(f"/static/{name}", headers=as_user("viewer")).status_code == 200
    for name in ("..%2fapp.py", "app.py", "%2e%2e%2fapp.py"):
        assert client.get(f"/static/{name}", headers=as_user("viewer")).status_code == 404


# Reading and writing


def test_get_changes_nothing(client, drive, ledger):
    before = counts(ledger)
    with ledger.read() as tx:
        known = items.listing(tx)
    for path, method in ROUTES:
        if method == "GET":
            client.get(filled(path, drive.item(NASTY).id), headers=as_user("admin"))
    assert counts(ledger) == before
    with ledger.read() as tx:
        assert items.listing(tx) == known


@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_actions_answer_to_post_alone(client, drive, action):
    path = f"/items/{drive.item(NASTY).id}/{action}"
    assert client.get(path, headers=as_user("admin")).status_code == 405
    assert drive.item(NASTY).state is ItemState.DEAD


@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_a_viewer_may_not_act(client, drive, action):
    path = f"/items/{drive.item(NASTY).id}/{action}"
    assert client.post(path, json={}, headers=as_user("viewer")).status_code == 403
    assert drive.item(NASTY).state is ItemState.DEAD


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "application/json", "origin": "https://evil.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
    ],
)
def test_another_site_cannot_act_with_a_users_cookie(client, drive, headers, status):
    path = f"/items/{drive.item(NASTY).id}/redrive"
    reply = client.post(path, content="{}", headers=as_user("admin", **headers))
    assert reply.status_code == status
    assert drive.item(NASTY).state is ItemState.DEAD


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "same-origin"}, {"origin": "http://testserver"}])
def test_a_redrive_from_the_page_is_written_under_the_users_name(client, drive, headers):
    path = f"/items/{drive.item(NASTY).id}/redrive"
    reply = client.post(path, json={}, headers=as_user("admin", **headers))
    assert (reply.status_code, reply.json()["changed"]) == (200, 1)
    assert drive.item(NASTY).state is ItemState.READY
    assert any("by admin" in line for line in drive.log(NASTY))
    assert client.post(path, json={}, headers=as_user("admin")).json()["changed"] == 0


def test_a_discard_from_the_page_keeps_its_reason(client, drive):
    path = f"/items/{drive.item(NASTY).id}/discard"
    reply = client.post(path, json={"reason": "a duplicate"}, headers=as_user("admin"))
    assert reply.status_code == 200
    assert drive.item(NASTY).state is ItemState.DISCARDED
    assert "a duplicate" in drive.log(NASTY)[-1]
    again = client.post(f"/items/{drive.item(NASTY).id}/redrive", json={}, headers=as_user("admin"))
    assert again.status_code == 409
    assert "is discarded" in again.json()["detail"]


def test_an_unknown_field_in_an_action_is_refused(client, drive):
    path = f"/items/{drive.item(NASTY).id}/discard"
    assert client.post(path, json={"raeson": "x"}, headers=as_user("admin")).status_code == 422
    assert drive.item(NASTY).state is ItemState.DEAD


# Health


def beat(ledger, **ages):
    with ledger.write() as tx:
        for name, age in ages.items():
            governing.beat(tx, name, utcnow() - age)


def test_health_is_open_and_says_status_and_age_only(client, drive, ledger):
    beat(ledger, **{SWEEP: timedelta(minutes=10), TICK: timedelta(minutes=1)})
    reply = client.get("/health")
    assert reply.status_code == 200
    assert set(reply.json()) == {"status", SWEEP, TICK}
    assert set(reply.json()[SWEEP]) == {"status", "age_s"}
    assert reply.json()["status"] == "ok"


def test_health_is_503_when_the_sweep_is_late(client, drive, ledger):
    beat(ledger, **{SWEEP: timedelta(hours=4), TICK: timedelta(minutes=1)})
    reply = client.get("/health")
    assert (reply.status_code, reply.json()[SWEEP]["status"]) == (503, "late")


def test_health_is_503_and_tells_no_secret_when_the_ledger_does_not_answer(client, monkeypatch):
    from airflow_relay.ledger.store import Ledger
    from support.pipelines import MemoryObjects

    broken = Ledger("postgresql+psycopg2://relay:s3cret@127.0.0.1:1/none", MemoryObjects())
    monkeypatch.setattr(web, "get_ledger", lambda: broken)
    reply = client.get("/health")
    assert (reply.status_code, reply.json()) == (503, {"status": "unreadable"})
    page = client.get("/", headers=as_user("viewer"))
    assert page.status_code == 503
    assert "s3cret" not in page.text

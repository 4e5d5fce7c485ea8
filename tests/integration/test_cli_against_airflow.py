"""The command line and the page beside a running Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from integration.relay_on_airflow import TICK_DAG, RelayOnAirflow

STAGES = ("first", "second", "choose", "last")


@pytest.fixture(scope="module")
def relay(airflow_instance: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(airflow_instance, "by_hand", "first")
    airflow_instance.wait_for_dags(*(made.dag(s) for s in STAGES), TICK_DAG)
    yield made
    made.close()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(airflow: AirflowInstance, *argv: str) -> Ran:
    """``airflow relay …`` as a person types it, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "airflow", "relay", *argv],
        env=airflow.env,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture(scope="module")
def done(relay: RelayOnAirflow) -> str:
    """The key of an item that has gone its whole way."""
    key = relay.start("watched")
    relay.wait_for(key, ItemState.DONE)
    relay.wait_for_run(relay.run_of(key, "last"))
    return key


# The command line


def test_items_show_and_log_tell_of_a_run_on_airflow(relay: RelayOnAirflow, done: str) -> None:
    listed = command(relay.airflow, "items", "-o", "json", "--pipeline", "by_hand")
    assert listed.code == 0, listed.err
    assert {row["item"]: row["state"] for row in listed.json}[done] == "done"
    assert "Ledger: embedded SQLite" in listed.err
    shown = command(relay.airflow, "show", done, "-o", "json").json
    assert [run["stage"] for run in shown["runs"]] == list(STAGES)
    assert all(run["trigger_latency"] is not None for run in shown["runs"])
    log = command(relay.airflow, "log", done, "-o", "json").json
    assert log[0]["kind"] == "registered"


def test_a_paused_dag_is_the_reason_that_items_names(relay: RelayOnAirflow) -> None:
    relay.api.pause(relay.dag("second"))
    relay.tick()  # a hand-off goes by what the tick has seen
    try:
        key = relay.start("paused")
        relay.wait_for(key, ItemState.READY, stage="second")
        rows = {r["item"]: r for r in command(relay.airflow, "items", "-o", "json").json}
        assert rows[key]["waits"] == "paused"
    finally:
        relay.api.unpause(relay.dag("second"))
    relay.tick()
    relay.wait_for(key, ItemState.DONE)


def test_a_hold_of_the_variable_is_seen_by_the_command_line(relay: RelayOnAirflow) -> None:
    relay.api.set_variable("relay_hold", '{"by_hand": "the editor is away"}')
    try:
        held = command(relay.airflow, "hold", "-o", "json").json
    finally:
        relay.api.delete_variable("relay_hold")
    assert [(row["scope"], row["reason"]) for row in held] == [("by_hand", "the editor is away")]


def test_dispatch_starts_what_a_person_has_made_ready(relay: RelayOnAirflow) -> None:
    key = relay.start("again", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    relay.wait_for_run(relay.run_of(key, "second"))
    relay.signal(key, "second")
    rewound = command(relay.airflow, "rewind", key, "second", "-o", "json")
    assert (rewound.code, rewound.json["changed"]) == (0, 1), rewound.err
    sent = command(relay.airflow, "dispatch", "-o", "json")
    assert sent.code == 0, sent.err
    (grant,) = [g for g in sent.json if g["stage"] == "second"]
    assert grant["sent"] is True
    relay.wait_for(key, ItemState.DONE)
    run = relay.run_of(key, "second")
    assert relay.api.dag_run(run.dag_id, run.run_id)["triggered_by"] == "cli"


def test_doctor_examines_the_running_deployment(relay: RelayOnAirflow, done: str) -> None:
    relay.tick()
    examined = command(relay.airflow, "doctor", "-o", "json")
    found: dict[str, list[dict[str, str]]] = {}
    for row in examined.json:
        found.setdefault(row["area"], []).append(row)
    for area in ("ledger", "executor", "scheduler", "dag processor", "triggerer", "latency", "settings"):
        assert [row["grade"] for row in found[area]] == ["ok"], (area, found[area])
    problems = [row for rows in found.values() for row in rows if row["grade"] == "problem"]
    assert all(row["cure"] for row in problems)
    assert examined.code == (1 if problems else 0)


def test_doctor_names_a_paused_stage_with_its_cure(relay: RelayOnAirflow, done: str) -> None:
    relay.api.pause(relay.dag("last"))
    try:
        examined = command(relay.airflow, "doctor", "-o", "json")
    finally:
        relay.api.unpause(relay.dag("last"))
    assert examined.code == 1
    assert any("airflow dags unpause by_hand__last" in row["cure"] for row in examined.json)


def test_status_counts_what_ran(relay: RelayOnAirflow, done: str) -> None:
    status = command(relay.airflow, "status", "-o", "json").json
    stages = {row["stage"]: row for row in status["stages"]}
    assert stages["by_hand.last"]["succeeded"] >= 1
    assert stages["by_hand.last"]["mean_latency"] > 0


# The page


@pytest.fixture
def browser(relay: RelayOnAirflow) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=relay.airflow.address, timeout=30) as client:
        yield client


def logged_in(browser: httpx.Client) -> dict[str, str]:
    token = browser.get("/auth/token").json()["access_token"]
    return {"Authorization": f"Bearer {token}"}


def test_health_and_pages_are_where_airflow_mounts_them(relay: RelayOnAirflow, browser: httpx.Client) -> None:
    """This Airflow lets everybody in as an admin; a forged token is refused all the same."""
    relay.tick()
    health = browser.get("/relay/health")
    assert health.status_code in (200, 503)
    assert health.json()["tick"]["status"] == "ok"
    forged = {"Authorization": "Bearer forged"}
    for path in ("/relay/", "/relay/items/1", "/relay/stages/by_hand/first", "/relay/static/relay.css"):
        assert browser.get(path, headers=forged).status_code == 403, path
    for action in ("redrive", "discard"):
        assert browser.post(f"/relay/items/1/{action}", json={}, headers=forged).status_code == 403


def test_the_page_shows_stages_and_items_to_a_user(
    relay: RelayOnAirflow, browser: httpx.Client, done: str
) -> None:
    front = browser.get("/relay/", headers=logged_in(browser))
    assert front.status_code == 200
    assert "by_hand.first" in front.text
    item = relay.item(done)
    assert item is not None
    page = browser.get(f"/relay/items/{item.id}", headers=logged_in(browser))
    assert done in page.text
    assert relay.run_of(done, "last").run_id in page.text


def test_the_login_cookie_of_the_ui_opens_the_page(relay: RelayOnAirflow, browser: httpx.Client) -> None:
    token = browser.get("/auth/token").json()["access_token"]
    assert browser.get("/relay/", headers={"Cookie": f"_token={token}"}).status_code == 200


def test_airflow_lists_the_page_in_its_navigation(relay: RelayOnAirflow) -> None:
    views = [view for plugin in relay.api.get("plugins")["plugins"] for view in plugin["external_views"]]
    (view,) = [view for view in views if view["name"] == "Relay"]
    assert (view["url_route"], view["destination"], view["href"]) == ("relay", "nav", "/relay/")


def test_each_run_links_to_the_log_of_its_item(relay: RelayOnAirflow, done: str) -> None:
    run = relay.run_of(done, "first")
    address = f"{relay.airflow.address}/relay/items/{run.item_id}"
    assert relay.api.extra_links(run.dag_id, run.run_id, "hand_off")["Item log"] == address
    sent = relay.run_of(done, "last")
    assert address in (relay.api.get_note(sent.dag_id, sent.run_id) or "")

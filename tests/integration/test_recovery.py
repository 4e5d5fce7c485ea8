"""Nothing stays stuck: sweep, dead letters, watchdog, fallback and form on a real Airflow (DESIGN 4)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from sqlalchemy import create_engine, text, update
from typing_extensions import Self

from airflow_instance import AirflowInstance
from airflow_relay.clock import utcnow
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import EventKind, ItemState, RunResult
from airflow_relay.core.watch import SWEEP
from airflow_relay.ledger import alerts, dead_letters, governing, items
from airflow_relay.ledger.dead_letters import DeadLetter
from airflow_relay.ledger.schema import alerts as alert_table
from airflow_relay.operations import actions
from integration.relay_on_airflow import RelayOnAirflow

SWEEP_DAG = "relay__recovery"
LETTER_DAG = "relay__dead_letter"
STAGES = ("first", "second", "choose")
SECONDS_ARE_HOURS = {"stale_hours": 0.001, "cooldown_hours": 0}
AWAITING = frozenset({"awaiting_input"})


@pytest.fixture(scope="module")
def relay(airflow_instance: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(airflow_instance, "mend", "first")
    airflow_instance.wait_for_dags(
        *(made.dag(s) for s in STAGES),
        *("relay__dispatch", SWEEP_DAG, LETTER_DAG, "relay__watchdog", "relay__admin"),
        "relay__fallback__mend__second",
    )
    # Airflow runs a new schedule once at once; the tests start the later sweeps themselves.
    airflow_instance.wait(
        lambda: any(run["state"] == "success" for run in made.api.list_runs(SWEEP_DAG)),
        what="the first scheduled sweep",
        timeout=180,
    )
    made.api.set_variable("relay_rules", json.dumps({"pipelines": {"mend": SECONDS_ARE_HOURS}}))
    yield made
    made.api.delete_variable("relay_rules")
    made.close()


def run_dag(relay: RelayOnAirflow, dag_id: str, conf: dict[str, Any] | None = None) -> str:
    """Trigger a DAG and wait for its success; returns the run id."""
    run_id = relay.api.trigger_dag(dag_id, conf)
    run = relay.airflow.wait_for_run(dag_id, run_id)
    assert run["state"] == "success", relay.api.task_states(dag_id, run_id)
    return run_id


def sweep(relay: RelayOnAirflow, **params: Any) -> str:
    """One sweep to its end; returns its summary."""
    run_id = run_dag(relay, SWEEP_DAG, params)
    return str(relay.api.xcom(SWEEP_DAG, run_id, "heartbeat")["summary"])


def stale(relay: RelayOnAirflow, key: str) -> None:
    """Wait until the item's last activity is older than the test's rules allow."""

    def idle() -> bool:
        item = relay.item(key)
        return item is not None and utcnow() - item.last_activity_at > timedelta(seconds=4)

    relay.airflow.wait(idle, what=f"{key} to be stale")


def kill_task(relay: RelayOnAirflow, run: Run) -> None:
    """kill -9 the process that runs the stage's work."""
    row = relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=frozenset({"running"}))
    os.kill(int(row["pid"]), signal.SIGKILL)


def one_run_a_grant(relay: RelayOnAirflow, key: str) -> None:
    granted = [run.run_id for run in relay.runs(key)]
    assert len(granted) == len(set(granted))
    in_airflow = [r for ids in relay.airflow_runs(key, STAGES).values() for r in ids]
    assert sorted(in_airflow) == sorted(set(in_airflow))


def letter_of(relay: RelayOnAirflow, key: str) -> DeadLetter:
    item = relay.item(key)
    assert item is not None
    with relay.ledger.read() as tx:
        return dead_letters.of_item(tx, item.id)[-1]


def dead(relay: RelayOnAirflow, name: str, stage: str = "second") -> str:
    """An item that died of what it is, and not of the service."""
    key = relay.start(name, **{stage: "block"})
    relay.wait_for(key, ItemState.DEAD, stage=stage)
    return key


# The sweep


def test_a_stage_whose_process_is_killed_is_refired_by_the_sweep_and_ends(relay):
    key = relay.start("killed", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    kill_task(relay, relay.run_of(key, "second"))
    relay.wait_for(key, ItemState.FAILED)
    relay.signal(key, "second")
    stale(relay, key)
    assert "1 refired" in sweep(relay)
    item = relay.wait_for(key, ItemState.DONE)
    assert item.attempts == 1
    one_run_a_grant(relay, key)


def test_each_step_of_a_sweep_can_be_read(relay):
    run_id = run_dag(relay, SWEEP_DAG)
    steps = ("load_rules", "scan", "reconcile", "decide", "refire", "escalate", "heartbeat")
    assert relay.api.task_states(SWEEP_DAG, run_id) == dict.fromkeys(steps, "success")
    for step in steps:
        assert relay.api.xcom(SWEEP_DAG, run_id, step)["summary"], step
    with relay.ledger.read() as tx:
        assert utcnow() - governing.last_beat(tx, SWEEP) < timedelta(minutes=2)


def test_a_run_that_was_deleted_is_found_by_the_sweep_itself_and_refired(relay):
    key = relay.start("deleted", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    lost = relay.run_of(key, "second")
    relay.airflow_forgets(lost)
    relay.signal(key, "second")
    stale(relay, key)
    sweep(relay)
    relay.wait_for(key, ItemState.DONE)
    assert next(r for r in relay.runs(key) if r.id == lost.id).result is RunResult.LOST
    one_run_a_grant(relay, key)


def test_a_run_that_works_for_long_is_never_touched(relay):
    key = relay.start("long", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    run = relay.run_of(key, "second")
    stale(relay, key)
    sweep(relay)
    assert relay.run_of(key, "second") == run
    relay.signal(key, "second")
    assert relay.wait_for(key, ItemState.DONE).attempts == 0


def test_a_dry_run_and_an_exclude_list_change_nothing(relay):
    key = relay.start("dry", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    relay.wait_for_run(relay.run_of(key, "second"), "failed")
    stale(relay, key)
    before = relay.item(key)
    assert sweep(relay, dry_run=True).startswith("DRY RUN.")
    assert "excluded" in sweep(relay, exclude=[key])
    assert relay.item(key) == before
    relay.signal(key, "second")
    sweep(relay)
    relay.wait_for(key, ItemState.DONE)


def test_an_item_that_keeps_failing_is_given_up_after_three_attempts(relay):
    key = relay.start("hopeless", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    for number in (1, 2, 3):
        stale(relay, key)
        sweep(relay)
        relay.wait_for(key, ItemState.FAILED, stage="second", more=lambda i, n=number: i.attempts == n)
        relay.airflow.wait(
            lambda n=number: (
                len([r for r in relay.runs(key) if r.stage == "second" and r.closed_at]) == n + 1
            ),
            what=f"attempt {number} to be closed",
        )
    stale(relay, key)
    sweep(relay)
    relay.wait_for(key, ItemState.DEAD)
    assert len(relay.airflow_runs(key, ["second"])["second"]) == 4
    with relay.ledger.read() as tx:
        mine = [a for a in _all_alerts(tx) if f"'{key}'" in a]
    assert len(mine) == 1


def _all_alerts(tx: Any) -> list[str]:
    return list(tx.conn.execute(alert_table.select().with_only_columns(alert_table.c.text)).scalars())


def test_a_wrong_rule_is_told_by_name_and_its_default_used(relay):
    relay.api.set_variable("relay_rules", json.dumps({"atempts_per_day": 9}))
    run_id = run_dag(relay, SWEEP_DAG)
    relay.api.set_variable("relay_rules", json.dumps({"pipelines": {"mend": SECONDS_ARE_HOURS}}))
    loaded = relay.api.xcom(SWEEP_DAG, run_id, "load_rules")
    assert "atempts_per_day" in loaded["summary"]
    assert loaded["rules"]["attempts_per_day"] == 3


# Dead letters


def ask(relay: RelayOnAirflow, key: str) -> str:
    """Let the tick put the item's letter as a question; returns its run id once it waits."""
    relay.tick()
    run_id = f"relay:letter:{letter_of(relay, key).id}"
    relay.airflow.wait_for_task(LETTER_DAG, run_id, "ask", states=AWAITING)
    scheduler_has_heard(relay, run_id)
    return run_id


def scheduler_has_heard(relay: RelayOnAirflow, run_id: str, times: int = 1) -> None:
    """Wait until the scheduler knows that the question's process has ended.

    An answer that comes before that, faster than any person, makes Airflow retry the task: it asks once more.
    """
    log = relay.airflow.component("scheduler").log_file

    def heard() -> bool:
        events = [line for line in log.read_text().splitlines() if "Received executor event" in line]
        return sum(f"run_id='{run_id}'" in line for line in events) >= times

    relay.airflow.wait(heard, what=f"the scheduler to hear of {run_id}")


def hitl_path(run_id: str) -> str:
    return f"dags/{LETTER_DAG}/dagRuns/{run_id}/taskInstances/ask/-1/hitlDetails"


def answer(relay: RelayOnAirflow, run_id: str, choice: str, **form: Any) -> None:
    filled = {"stage": None, "fresh": False, "outcome": None, **form}
    relay.api.request("PATCH", hitl_path(run_id), json={"chosen_options": [choice], "params_input": filled})


def closed(relay: RelayOnAirflow, run_id: str) -> str:
    assert relay.airflow.wait_for_run(LETTER_DAG, run_id)["state"] == "success"
    return str(relay.api.xcom(LETTER_DAG, run_id, "ask")["text"])


def test_a_dead_letter_is_a_question_and_redrive_lets_the_item_end(relay):
    key = dead(relay, "redriven")
    run_id = ask(relay, key)
    shown = relay.api.get(hitl_path(run_id))
    assert shown["options"] == ["Redrive", "Skip stage", "Discard"]
    assert key in shown["subject"]
    assert "blocked by the content policy" in shown["body"]
    assert "Last log lines" in shown["body"]
    relay.signal(key, "second")
    answer(relay, run_id, "Redrive")
    relay.wait_for(key, ItemState.DONE)
    assert "ready for second again" in closed(relay, run_id)
    letter = letter_of(relay, key)
    assert letter.resolution == "redriven"
    assert letter.resolved_by
    one_run_a_grant(relay, key)


def test_a_discard_ends_the_item(relay):
    key = dead(relay, "discarded")
    run_id = ask(relay, key)
    answer(relay, run_id, "Discard")
    relay.wait_for(key, ItemState.DISCARDED)
    assert "discarded" in closed(relay, run_id)


def test_an_answer_that_cannot_be_carried_out_leaves_the_question_open(relay):
    key = dead(relay, "routed", "choose")
    run_id = ask(relay, key)
    assert "needs an outcome: drop, ship" in relay.api.get(hitl_path(run_id))["body"]
    answer(relay, run_id, "Skip stage")

    def open_again() -> bool:
        return not relay.api.get(hitl_path(run_id))["response_received"]

    relay.airflow.wait(open_again, what="the question to be open again")
    relay.airflow.wait_for_task(LETTER_DAG, run_id, "ask", states=AWAITING)
    scheduler_has_heard(relay, run_id, times=2)
    assert relay.item(key).state is ItemState.DEAD
    answer(relay, run_id, "Skip stage", outcome="ship")
    relay.wait_for(key, ItemState.DONE)


def look_again(relay: RelayOnAirflow, run_id: str) -> None:
    """Let the half hour pass after which a question looks at its letter."""
    engine = create_engine(relay.airflow.metadata_url)
    with engine.begin() as conn:
        conn.execute(
            text("UPDATE task_instance SET trigger_timeout = :past WHERE run_id = :run_id"),
            {"past": utcnow() - timedelta(minutes=1), "run_id": run_id},
        )
    engine.dispose()


def test_a_question_stays_until_its_letter_is_decided_elsewhere_and_closes_itself_then(relay):
    key = dead(relay, "elsewhere")
    run_id = ask(relay, key)
    asker = relay.api.task_instance(LETTER_DAG, run_id, "ask")["pid"]
    look_again(relay, run_id)

    def parked_anew() -> bool:
        now = relay.api.task_instance(LETTER_DAG, run_id, "ask")
        return now["state"] == "awaiting_input" and now["pid"] != asker

    relay.airflow.wait(parked_anew, what="the question to look and wait on")
    scheduler_has_heard(relay, run_id, times=2)
    actions.discard(relay.ledger, key, by="ada", now=utcnow(), pipeline="mend")
    look_again(relay, run_id)
    assert "was discarded by ada" in closed(relay, run_id)


def test_an_answer_to_a_letter_that_was_decided_elsewhere_changes_nothing(relay):
    key = dead(relay, "late")
    run_id = ask(relay, key)
    actions.discard(relay.ledger, key, by="ada", now=utcnow(), pipeline="mend")
    answer(relay, run_id, "Redrive")
    assert "nothing to ask" in closed(relay, run_id)
    assert relay.item(key).state is ItemState.DISCARDED


# Alerts


class Webhook(HTTPServer):
    """Takes alerts, or refuses them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[str] = []
        self.status = 200

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            self.server.taken.append(body["text"])
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook(relay: RelayOnAirflow) -> Iterator[Webhook]:
    with Webhook() as hook:
        relay.api.request(
            "POST",
            "connections",
            json={
                "connection_id": "relay_alerts",
                "conn_type": "http",
                "host": "127.0.0.1",
                "port": hook.server_port,
            },
        )
        yield hook
        relay.api.request("DELETE", "connections/relay_alerts")


def test_an_alert_reaches_its_channel_once_also_when_the_channel_was_down_at_first(relay, webhook):
    webhook.status = 500
    key = dead(relay, "alerted")
    relay.tick()
    with relay.ledger.read() as tx:
        waiting, error = alerts.count_unsent(tx)
    assert waiting >= 1
    assert "500" in (error or "")
    webhook.status = 200
    with relay.ledger.write() as tx:  # its sender's two minutes have passed
        tx.conn.execute(update(alert_table).values(claimed_at=None))
    relay.tick()
    relay.tick()
    assert len([said for said in webhook.taken if key in said]) == 1


# The watchdog


def test_the_watchdog_is_content_while_sweep_and_tick_come(relay):
    relay.tick()
    sweep(relay)
    run_id = run_dag(relay, "relay__watchdog")
    assert relay.api.xcom("relay__watchdog", run_id, "watch")["status"] == "ok"


def test_the_watchdog_fails_and_alerts_once_when_the_sweep_no_longer_comes(relay):
    long_ago = utcnow() - timedelta(hours=5)
    with relay.ledger.write() as tx:
        governing.beat(tx, SWEEP, long_ago)
    for _ in range(2):
        run_id = relay.api.trigger_dag("relay__watchdog")
        assert relay.airflow.wait_for_run("relay__watchdog", run_id)["state"] == "failed"
    with relay.ledger.read() as tx:
        told = [
            said for said in _all_alerts(tx) if "recovery sweep (relay__recovery) last ran 5 h ago" in said
        ]
    sweep(relay)
    assert len(told) == 1


# Fallback schedules and the form


def waiting_items(relay: RelayOnAirflow, number: int) -> list[Item]:
    keys = [relay.start(f"waits-{n}", second="fail") for n in range(number)]
    for key in keys:
        relay.wait_for(key, ItemState.FAILED, stage="second")
        relay.signal(key, "second")
        stale(relay, key)
    return [relay.wait_for(key, ItemState.FAILED) for key in keys]


def test_a_fallback_dag_is_paused_and_serves_the_waiting_items_of_its_stage_once_each(relay):
    dag_id = "relay__fallback__mend__second"
    assert relay.api.dag(dag_id)["is_paused"]
    before = waiting_items(relay, 2)
    relay.api.unpause(dag_id)
    try:
        run_dag(relay, dag_id)
        run_dag(relay, dag_id)
    finally:
        relay.api.pause(dag_id)
    for item in before:
        done = relay.wait_for(item.key, ItemState.DONE)
        assert done.attempts == 1
        assert len(relay.airflow_runs(item.key, ["second"])["second"]) == 2
        one_run_a_grant(relay, item.key)


def test_the_form_does_what_the_command_line_does_and_runs_the_item_at_once(relay):
    key = dead(relay, "by-form")
    relay.signal(key, "second")
    run_id = run_dag(relay, "relay__admin", {"action": "redrive", "item": key, "pipeline": "mend"})
    assert relay.api.xcom("relay__admin", run_id, "act")["changed"] == 1
    relay.wait_for(key, ItemState.DONE)
    with relay.ledger.read() as tx:
        item = relay.item(key)
        redriven = items.log_of(tx, item.id, kinds=[EventKind.REDRIVEN])
    assert len(redriven) == 1


def test_a_form_that_lacks_a_field_says_which(relay):
    run_id = relay.api.trigger_dag("relay__admin", {"action": "rewind", "item": "x"})
    assert relay.airflow.wait_for_run("relay__admin", run_id)["state"] == "failed"
    assert "to_stage" in relay.api.task_log("relay__admin", run_id, "act")

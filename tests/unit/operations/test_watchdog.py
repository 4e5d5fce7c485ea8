"""The watchdog task: fails, tells people once an outage, past the ledger too, and pings while all is well."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.core.watch import SWEEP, TICK
from airflow_relay.ledger import alerts, governing
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.notifications import alerts as sending
from airflow_relay.operators import watchdog
from airflow_relay.operators.watchdog import RecoveryNotWorkingError, Watchdog


class Ti:
    """Keeps XCom from run to run, as ``include_prior_dates`` sees it."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.kept[key] = value

    def xcom_pull(self, *, task_ids: str, key: str, include_prior_dates: bool) -> Any:
        assert task_ids == "watch"
        assert include_prior_dates
        return self.kept.get(key)


@pytest.fixture
def ti() -> Ti:
    return Ti()


@pytest.fixture
def watch(monkeypatch, drive, ti):
    monkeypatch.setattr(watchdog, "utcnow", lambda: drive.now)
    monkeypatch.setattr(sending, "utcnow", lambda: drive.now)
    monkeypatch.setattr(watchdog, "get_ledger", lambda: drive.ledger)
    monkeypatch.setattr(sending.BaseHook, "get_connection", _missing)
    drive.intake("a")

    def run() -> dict[str, Any]:
        return Watchdog(task_id="watch", ping_conn_id="relay_dead_man").execute({"ti": ti})

    return run


def _missing(conn_id: str) -> Any:
    raise AirflowNotFoundException(conn_id)


def beat(drive, *names: str) -> None:
    with drive.ledger.write() as tx:
        for name in names:
            governing.beat(tx, name, drive.now)


def told(drive) -> int:
    with drive.ledger.read() as tx:
        return len(tx.conn.execute(alerts.alerts.select()).all())


def test_all_is_well(drive, watch):
    beat(drive, SWEEP, TICK)
    found = watch()
    assert found["status"] == "ok"
    assert found["ping"] == "no connection 'relay_dead_man'"
    assert told(drive) == 0


def test_one_alert_an_outage_and_another_one_for_the_next(drive, watch):
    beat(drive, SWEEP, TICK)
    drive.later(hours=4)
    beat(drive, TICK)
    for _ in range(3):
        with pytest.raises(RecoveryNotWorkingError, match="relay__recovery"):
            watch()
    assert told(drive) == 1
    beat(drive, SWEEP)
    assert watch()["status"] == "ok"
    drive.later(hours=4)
    beat(drive, TICK)
    with pytest.raises(RecoveryNotWorkingError):
        watch()
    assert told(drive) == 2


def test_a_ledger_that_cannot_be_read_is_told_once_past_it(drive, watch, monkeypatch, caplog):
    beat(drive, SWEEP, TICK)

    def gone() -> Any:
        raise LedgerNotReadyError("connection refused")

    monkeypatch.setattr(watchdog, "get_ledger", gone)
    for _ in range(2):
        with pytest.raises(RecoveryNotWorkingError, match="connection refused"):
            watch()
    assert caplog.text.count("ALERT") == 1
    monkeypatch.setattr(watchdog, "get_ledger", lambda: drive.ledger)
    watch()
    monkeypatch.setattr(watchdog, "get_ledger", gone)
    with pytest.raises(RecoveryNotWorkingError):
        watch()
    assert caplog.text.count("ALERT") == 2


def test_a_refused_message_is_tried_again_by_the_next_run(drive, watch, monkeypatch, ti):
    def gone() -> Any:
        raise LedgerNotReadyError("connection refused")

    answers = iter(["no route to host", None])
    asked: list[str] = []

    def send(text: str, *_: Any) -> str | None:
        asked.append(text)
        return next(answers)

    monkeypatch.setattr(watchdog, "get_ledger", gone)
    monkeypatch.setattr(watchdog, "send_directly", send)
    for _ in range(3):
        with pytest.raises(RecoveryNotWorkingError):
            watch()
    assert len(asked) == 2
    assert ti.kept == {"told": True}


def test_the_ping_goes_out_while_all_is_well_and_never_fails_the_task(drive, watch, monkeypatch):
    from airflow.providers.http.hooks.http import HttpHook

    pings: list[Any] = []

    class Answer:
        status_code = 200

    def run(_self: Any, **kwargs: Any) -> Answer:
        pings.append(kwargs["extra_options"]["timeout"])
        if len(pings) > 1:
            raise ConnectionError("no route to host")
        return Answer()

    monkeypatch.setattr(watchdog.BaseHook, "get_connection", lambda _conn_id: object())
    monkeypatch.setattr(HttpHook, "run", run)
    beat(drive, SWEEP, TICK)
    assert watch()["ping"] == "200"
    assert "no route to host" in watch()["ping"]
    drive.later(hours=4)
    monkeypatch.setattr(watchdog, "send_alerts", lambda *_: None)
    with pytest.raises(RecoveryNotWorkingError):
        watch()
    assert len(pings) == 2, "a deployment that does not recover must miss its ping"

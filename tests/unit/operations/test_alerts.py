"""Alerts go out once, through any notifier, and a channel that fails stops nothing."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.core.states import RunResult
from airflow_relay.ledger import alerts
from airflow_relay.notifications import alerts as sending


class Channel(BaseNotifier):
    """Keeps what it is told; ``refuse`` answers with an error."""

    template_fields = ("text",)
    taken: list[str] = []  # noqa: RUF012 - shared on purpose: each alert gets its own copy of the notifier

    def __init__(self, refuse: str = "") -> None:
        super().__init__()
        self.text = "{{ relay_alert.text }}"
        self.refuse = refuse

    def notify(self, context: Any) -> None:
        if self.refuse:
            raise ConnectionError(self.refuse)
        self.taken.append(self.text)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, drive):
    Channel.taken = []
    monkeypatch.setattr(sending, "utcnow", lambda: drive.now)


def dead(drive, *keys: str) -> None:
    for run in drive.intake(*keys):
        drive.guard(run)
        drive.end(run, result=RunResult.FAILED, error="auth")


def waiting(drive) -> list[alerts.Alert]:
    with drive.ledger.read() as tx:
        return alerts.unsent(tx)


def test_each_alert_is_sent_once_with_its_own_text(drive):
    dead(drive, "a", "b")
    sent = sending.send_alerts(drive.ledger, {}, Channel())
    assert (sent.taken, sent.refused) == (2, 0)
    assert ["'a'" in Channel.taken[0], "'b'" in Channel.taken[1]] == [True, True]
    assert sending.send_alerts(drive.ledger, {}, Channel()).taken == 0
    assert len(Channel.taken) == 2


def test_a_refusing_channel_is_no_error_is_kept_and_is_tried_again(drive):
    dead(drive, "a")
    sent = sending.send_alerts(drive.ledger, {}, Channel(refuse="no route to host"))
    assert (sent.taken, sent.refused) == (0, 1)
    (kept,) = waiting(drive)
    assert kept.attempts == 1
    assert "no route to host" in (kept.error or "")
    assert sending.send_alerts(drive.ledger, {}, Channel()).taken == 0, "its claim has not ended yet"
    drive.later(minutes=5)
    assert sending.send_alerts(drive.ledger, {}, Channel()).taken == 1


def test_a_dead_channel_is_given_up_after_two_refusals(drive):
    dead(drive, *"abcd")  # fewer than open a breaker, which alerts as well
    sent = sending.send_alerts(drive.ledger, {}, Channel(refuse="down"))
    assert sent.refused == 2
    assert len(waiting(drive)) == 4


class Picky(Channel):
    """Takes everything but what is about some items, as a service that refuses a text for its length."""

    def notify(self, context: Any) -> None:
        if "'bad-" in self.text:
            raise ValueError("400 Bad Request")
        super().notify(context)


def test_alerts_that_the_channel_never_takes_hold_up_no_other(drive):
    dead(drive, "bad-1", "bad-2", "bad-3", "good")
    for _ in range(3):
        sending.send_alerts(drive.ledger, {}, Picky())
        drive.later(minutes=5)
    assert ["'good'" in said for said in Channel.taken] == [True]
    assert len(waiting(drive)) == 3


def test_a_secret_in_a_refusal_is_not_kept(drive):
    dead(drive, "a")
    sending.send_alerts(drive.ledger, {}, Channel(refuse="token=sk-proj-abcdefghijklmnop1234567890"))
    assert "abcdefghijklmnop" not in (waiting(drive)[0].error or "")


def test_without_a_connection_the_log_and_the_items_own_log_have_it(drive, monkeypatch, caplog):
    def missing(conn_id: str) -> Any:
        raise AirflowNotFoundException(conn_id)

    monkeypatch.setattr(sending.BaseHook, "get_connection", missing)
    dead(drive, "a")
    assert sending.send_alerts(drive.ledger, {}).taken == 1
    assert "in the dead letters at first" in caplog.text
    assert "Alert, to the task log only" in drive.log("a")[-1]


def test_a_message_past_the_ledger_says_whether_it_was_taken():
    assert sending.send_directly("the ledger is gone", {}, Channel()) is None
    assert Channel.taken == ["the ledger is gone"]
    assert "down" in (sending.send_directly("the ledger is gone", {}, Channel(refuse="down")) or "")

"""Sends the ledger's alerts to people, through any Airflow notifier; a channel that fails stops nothing."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.clock import utcnow
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.ledger import alerts, items
from airflow_relay.ledger.alerts import Alert
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)

ALERTS_CONN_ID: Final = "relay_alerts"
"""An HTTP connection: the webhook that takes ``{"text": …}``, as Slack, Mattermost and Teams do."""

TEMPLATE_NAME: Final = "relay_alert"
"""In a notifier's templated fields: ``{{ relay_alert.text }}``, ``.dedup_key``, ``.raised_at``."""

GIVE_UP_AFTER: Final = 2
"""Refusals in a row after which the rest waits for the next tick: a dead channel costs no minutes."""

TIMEOUT_S: Final = 10


@dataclass(frozen=True)
class Sent:
    """What became of the alerts: taken by the channel, refused, and what was said last."""

    taken: int
    refused: int
    error: str | None = None


def send_alerts(ledger: Ledger, context: Mapping[str, Any], notifier: BaseNotifier | None = None) -> Sent:
    """Send what the outbox holds, each alert by one sender. Never raises because of a channel.

    :param context: Airflow's task context, for the notifier's templates.
    :param notifier: any Airflow notifier; ``None`` for a POST to the connection ``relay_alerts``, or without
        that connection the task's log and the item's own log.
    """
    with ledger.read() as tx:
        waiting = alerts.unsent(tx)
    taken, refused, in_a_row = 0, 0, 0
    error: str | None = None
    for alert in waiting:
        with ledger.write() as tx:
            mine = alerts.claim(tx, alert, utcnow())
        if not mine:
            continue
        said = _deliver(ledger, alert, context, notifier)
        with ledger.write() as tx:
            alerts.settle(tx, alert, now=utcnow(), error=said)
        if said is None:
            taken, in_a_row = taken + 1, 0
            continue
        refused, in_a_row, error = refused + 1, in_a_row + 1, said
        if in_a_row >= GIVE_UP_AFTER:
            break
    if error is not None:
        log.warning("The alert channel refused %d alerts, which are sent again later: %s", refused, error)
    return Sent(taken, refused, error)


def send_directly(text: str, context: Mapping[str, Any], notifier: BaseNotifier | None = None) -> str | None:
    """Send one message past the outbox, as when the ledger cannot be read.

    :return: what the channel refused it with; ``None`` when it was taken.
    """
    alert = Alert(id=0, dedup_key="ledger", text=text, raised_at=utcnow(), attempts=0, error=None)
    return _deliver(None, alert, context, notifier)


def _deliver(
    ledger: Ledger | None, alert: Alert, context: Mapping[str, Any], notifier: BaseNotifier | None
) -> str | None:
    try:
        channel = copy.deepcopy(notifier) if notifier is not None else _default_channel()
        if channel is None:
            _tell_log(ledger, alert)
            return None
        channel({**context, TEMPLATE_NAME: alert})
    except LedgerError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a channel does, the sweep goes on; it is kept and shown
        return scrub(f"{type(error).__name__}: {error}")
    return None


def _default_channel() -> BaseNotifier | None:
    try:
        BaseHook.get_connection(ALERTS_CONN_ID)
    except AirflowNotFoundException:
        return None
    from airflow.providers.http.notifications.http import HttpNotifier  # noqa: PLC0415 - imports aiohttp

    return HttpNotifier(
        http_conn_id=ALERTS_CONN_ID,
        json={"text": f"{{{{ {TEMPLATE_NAME}.text }}}}"},
        extra_options={"timeout": TIMEOUT_S},
    )


def _tell_log(ledger: Ledger | None, alert: Alert) -> None:
    """Without a channel: the task's log, and the log of the item that the alert is about."""
    log.warning("ALERT (no connection %r): %s", ALERTS_CONN_ID, alert.text)
    item_id = alert.item_id
    if ledger is None or item_id is None:
        return
    with ledger.write() as tx:
        item = items.locked(tx, item_id)
        items.note(tx, item, f"Alert, to the task log only (no connection {ALERTS_CONN_ID})", utcnow())

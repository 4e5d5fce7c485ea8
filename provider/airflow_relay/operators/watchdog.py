"""The watchdog: tells people when sweep or tick no longer come, or when nobody can say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import BaseHook, BaseNotifier, BaseOperator
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.clock import utcnow
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.core.watch import Health, Report
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import alerts, governing
from airflow_relay.notifications.alerts import send_alerts, send_directly
from airflow_relay.operations.health import check_recovery

log: Final = logging.getLogger(__name__)

PING_TIMEOUT_S: Final = 10
_TOLD: Final = "told"
"""XCom key: people were told of a ledger that cannot be read. The ledger cannot keep that itself."""


class RecoveryNotWorkingError(RuntimeError):
    """Sweep or tick do not come; people were told. The task fails, so that Airflow shows it as well."""


class Watchdog(BaseOperator):
    """Look at the heartbeats; alert once an outage, and ping a dead-man switch while all is well.

    :param max_age: allowed age of the last sweep; ``None`` for 3 h.
    :param ping_conn_id: an HTTP connection of an outside service that raises the alarm when no GET comes any
        more, as when Airflow itself is down; without such a connection nothing is pinged.
    :param notifier: any Airflow notifier; ``None`` for the connection ``relay_alerts``.
    """

    def __init__(
        self,
        *,
        max_age: timedelta | None = None,
        ping_conn_id: str | None = None,
        notifier: BaseNotifier | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_age = max_age
        self.ping_conn_id = ping_conn_id
        self.notifier = notifier

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the report, with what the ping was answered.

        :raises RecoveryNotWorkingError: with the sentence that people were told.
        """
        report = check_recovery(get_ledger, now=utcnow(), max_age=self.max_age)
        log.info("%s", report.sentence)
        if report.health is Health.UNREADABLE:
            self._tell_past_the_ledger(report, context)
        else:
            context["ti"].xcom_push(key=_TOLD, value=False)
            self._tell(report, context)
        if not report.ok:
            raise RecoveryNotWorkingError(report.sentence)
        return {**report.to_json(), "sentence": report.sentence, "ping": self._ping()}

    def _tell(self, report: Report, context: Mapping[str, Any]) -> None:
        """Through the outbox: once an outage, which ends with the next heartbeat."""
        if report.ok:
            return
        ledger = get_ledger()
        with ledger.dispatcher() as tx:
            for watched in report.watched:
                if watched.health is Health.OK:
                    continue
                last = governing.last_beat(tx, watched.name)
                since = "never" if last is None else last.isoformat()
                alerts.raise_alert(tx, f"watch:{watched.name}:{since}", watched.sentence, utcnow())
        send_alerts(ledger, context, self.notifier)

    def _tell_past_the_ledger(self, report: Report, context: Mapping[str, Any]) -> None:
        """Once an outage: the watchdog's run before this one knows whether it has told."""
        ti = context["ti"]
        told = ti.xcom_pull(task_ids=self.task_id, key=_TOLD, include_prior_dates=True)
        if told:
            log.info("People were told before.")
        else:
            refused = send_directly(report.sentence, context, self.notifier)
            told = refused is None
            if refused is not None:
                log.error("The alert channel refused it, the next run tries again: %s", refused)
        ti.xcom_push(key=_TOLD, value=told)

    def _ping(self) -> str:
        if self.ping_conn_id is None:
            return "off"
        from airflow.providers.http.hooks.http import HttpHook  # noqa: PLC0415 - imports aiohttp

        try:
            BaseHook.get_connection(self.ping_conn_id)
        except AirflowNotFoundException:
            return f"no connection {self.ping_conn_id!r}"
        try:
            hook = HttpHook(method="GET", http_conn_id=self.ping_conn_id)
            answer = hook.run(extra_options={"timeout": PING_TIMEOUT_S})
        except Exception as error:  # noqa: BLE001 - a ping that fails is what its service is there to notice
            text = scrub(f"{type(error).__name__}: {error}")
            log.warning("The dead-man ping failed: %s", text)
            return text
        return str(answer.status_code)

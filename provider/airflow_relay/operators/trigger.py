"""Sending grants: one DAG run a grant, whatever is killed, repeated or delivered twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

from airflow_relay import compat, links
from airflow_relay.clock import utcnow
from airflow_relay.core.item import Change, Run
from airflow_relay.core.states import EventKind
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import closing, declarations, governing, items
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)


def conf_of(run: Run, key: str) -> dict[str, Any]:
    """What a run is told: ids only. Everything that may change is read from the ledger at run time."""
    return {"item_id": key, "epoch": run.epoch, "ledger": run.ledger_id}


def send_grants(
    ledger: Ledger,
    grants: Iterable[Run],
    *,
    keys: Mapping[int, str] | None = None,
    trigger: Callable[..., bool] | None = None,
) -> list[Run]:
    """Trigger a DAG run for each grant, then confirm them.

    A run that exists already under its own run id is confirmed like a new one.

    :param keys: item → key, of the items whose key the caller knows.
    :param trigger: starts one run; by default :func:`~airflow_relay.compat.trigger_dag_run`, for tasks.
    :return: the grants sent.
    :raises TargetDagError: at least one DAG is missing or broken. The others were sent all the same. Its
        items wait again and the DAG is held for a moment, so that they take no slots from others.
    """
    grants = list(grants)
    if not grants:
        return []
    keys = _with_keys(ledger, keys or {}, {g.item_id for g in grants})
    sent: list[Run] = []
    failures: list[tuple[Run, compat.TargetDagError]] = []
    for grant in grants:
        key = keys[grant.item_id]
        what = f"{grant.pipeline}.{grant.stage}, grant {grant.epoch}"
        try:
            new = (trigger or compat.trigger_dag_run)(
                dag_id=grant.dag_id,
                run_id=grant.run_id,
                conf=conf_of(grant, key),
                note=f"Relay: item **{plain_text(key)}**, {what} ([log]({links.item_log(grant.item_id)}))",
            )
        except compat.TargetDagError as error:
            failures.append((grant, error))
            continue
        log.info("%s %s / %s", "Triggered" if new else "Found", grant.dag_id, grant.run_id)
        sent.append(grant)
    crash_point(CrashPoint.HAND_OFF_AFTER_TRIGGER)
    if sent:
        ledger.confirm([g.id for g in sent], utcnow())
    if failures:
        _take_back(ledger, failures)
    return sent


def _with_keys(ledger: Ledger, known: Mapping[int, str], wanted: set[int]) -> Mapping[int, str]:
    if wanted <= known.keys():
        return known
    with ledger.read() as tx:
        return {item.id: item.key for item in items.by_ids(tx, wanted)}


def plain_text(key: str) -> str:
    """A key inside a Markdown note: nothing in it is markup."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+-.!|~" else c for c in key)


def _take_back(ledger: Ledger, failures: list[tuple[Run, compat.TargetDagError]]) -> None:
    now = utcnow()
    with ledger.dispatcher() as tx:
        for grant, error in failures:
            item = items.locked(tx, grant.item_id)
            change = Change(kind=EventKind.NOTE, at=now, text=f"Hand-off failed: {error}", run=grant.id)
            items.perform(tx, item, change)
            if error.is_refused:
                pipeline = declarations.load(tx, grant.pipeline)
                closing.withdraw(tx, grant.id, pipeline=pipeline, why="its DAG cannot be triggered", now=now)
        for dag_id, reason in {g.dag_id: str(e) for g, e in failures if e.is_refused}.items():
            governing.hold_dag(tx, dag_id, reason, now)
    raise failures[0][1]


class RelayTrigger(TriggerDagRunOperator):
    """Send the grants that no run is known for yet, and dispatch.

    A :class:`TriggerDagRunOperator` in the UI (link to the triggered run, edge in the DAG graph), but with a
    run per unconfirmed grant, run ids of the grants, and no logical date.

    :param trigger_dag_id: the DAG that the graph shows as the target; grants name their own.
    """

    # Nothing here is a template, and Airflow sends what it has rendered to the API server before each start.
    template_fields = ()
    operator_extra_links = [links.TriggeredRunLink()]  # noqa: RUF012 - Airflow's own way

    def __init__(self, *, trigger_dag_id: str, **kwargs: Any) -> None:
        super().__init__(trigger_dag_id=trigger_dag_id, **kwargs)
        self.triggered_run: Run | None = None

    def execute(self, context: Mapping[str, Any]) -> Any:  # noqa: ARG002 - Airflow's signature
        """Dispatch and send. Returns the number of grants sent."""
        ledger, now = get_ledger(), utcnow()
        grants = ledger.dispatch(read_conditions(ledger, now), now)
        return len(self.send(ledger, grants))

    def send(self, ledger: Ledger, grants: Iterable[Run]) -> list[Run]:
        """Send these grants and those whose sender was lost, and note the run for the link in the UI.

        :raises TargetDagError: see :func:`send_grants`.
        """
        sent = send_grants(ledger, [*grants, *ledger.unconfirmed(utcnow())])
        self.note_triggered(sent)
        return sent

    def note_triggered(self, sent: Iterable[Run]) -> None:
        """Note the run that was started in the DAG that the graph shows."""
        self.triggered_run = next((g for g in sent if g.dag_id == self.trigger_dag_id), None)

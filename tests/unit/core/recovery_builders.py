"""Items, runs and decisions of the recovery rules."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_relay.core.item import Item, Run
from airflow_relay.core.recovery import (
    Decision,
    Finding,
    RecoveryRules,
    RunLiveness,
    decide,
)
from airflow_relay.core.states import ItemState, PriorityClass, RunState

NOW = datetime(2026, 6, 10, 18, tzinfo=timezone.utc)  # a Wednesday, 13:00 in Chicago
TODAY = "2026-06-10"
HOUR = timedelta(hours=1)
CHICAGO = "America/Chicago"
RULES = RecoveryRules()


def an_item(**changes: Any) -> Item:
    values: dict[str, Any] = {
        "id": 7,
        "pipeline": "content",
        "key": "article-42",
        "state": ItemState.FAILED,
        "stage": "write",
        "epoch": 3,
        "dag_id": "content__write",
        "error_class": "timeout",
        "registered_at": NOW - timedelta(days=1),
        "last_activity_at": NOW - 3 * HOUR,
    }
    return Item(**{**values, **changes})


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": 30,
        "item_id": 7,
        "pipeline": "content",
        "stage": "write",
        "visit": 1,
        "epoch": 3,
        "dag_id": "content__write",
        "run_id": "relay:content:write:article-42:3",
        "ledger_id": "ledger-a",
        "state": RunState.OPEN,
        "klass": PriorityClass.P2,
        "granted_at": NOW - 4 * HOUR,
    }
    return Run(**{**values, **changes})


def failed(**changes: Any) -> Decision:
    """Decide about a failed item."""
    return decide(
        Finding(item=an_item(**changes), liveness=RunLiveness.NO_RUN, timezone=CHICAGO), now=NOW, rules=RULES
    )


def running(
    liveness: RunLiveness, *, rules: RecoveryRules = RULES, run: Run | None = None, **finding: Any
) -> Decision:
    """Decide about an item whose run Airflow was asked about."""
    item = finding.pop("item", an_item(state=ItemState.RUNNING, error_class=None))
    return decide(
        Finding(item=item, liveness=liveness, run=run or a_run(), timezone=CHICAGO, **finding),
        now=NOW,
        rules=rules,
    )

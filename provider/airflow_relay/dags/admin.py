"""``relay__admin``: what the command line can do, as a form."""

from __future__ import annotations

from typing import Any, Final

from airflow.sdk import DAG, Param

from airflow_relay.dags.stage import START_DATE
from airflow_relay.operators.admin import Action, AdminAction

ADMIN_DAG_ID: Final = "relay__admin"

_DOCUMENTATION: Final = """\
Trigger it, choose an action and fill in what it needs:

| action | needs | may have |
|---|---|---|
| redrive | item, or a filter for dead letters | to_stage, fresh |
| skip stage | item, or a filter for dead letters | outcome, stage (the one that is meant) |
| discard | item, or a filter with its pipeline | reason |
| rewind | item, to_stage | fresh |
| move | pipeline, stage, to_stage | item |
| hold | scope, reason | hours |
| release | scope | |
| open breaker, close breaker | pipeline, stage | reason |
| dispatch | | |
| clean | days: finished items and lines of logs older than that go | |

The filter for dead letters: pipeline, stage, error_class, since_hours. What was done is the task's return
value. Doing it twice does it once; a second *skip stage* of an item skips its next stage, unless *stage* says
which one is meant.
"""


def admin_dag() -> DAG:
    """The form; it runs when somebody triggers it."""
    with DAG(
        ADMIN_DAG_ID,
        schedule=None,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=16,
        is_paused_upon_creation=False,
        tags={"relay"},
        params=_form(),
        doc_md=_DOCUMENTATION,
    ) as dag:
        AdminAction(task_id="act", trigger_dag_id=ADMIN_DAG_ID, retries=0)
    return dag


def _form() -> dict[str, Param]:
    def text(title: str, description: str = "") -> Param:
        return Param(None, type=["null", "string"], title=title, description=description)

    def number(title: str, description: str = "") -> Param:
        return Param(None, type=["null", "number"], title=title, description=description, minimum=0)

    form: dict[str, Any] = {
        "action": Param(
            Action.DISPATCH.value, type="string", enum=[action.value for action in Action], title="Action"
        ),
        "item": text("Item", "Its key. Empty: all dead letters that the filter matches."),
        "pipeline": text("Pipeline"),
        "stage": text("Stage", "Where the items are; of a breaker; part of the filter."),
        "to_stage": text("To stage", "Where a redrive, rewind or move goes."),
        "outcome": text("Outcome", "The route of a skipped router."),
        "error_class": text("Error class", "Filter: auth, quota_exhausted, …"),
        "since_hours": number("Since hours", "Filter: letters of the last so many hours."),
        "scope": text("Scope", "What to hold: a class (P2) or a pipeline."),
        "hours": number("Hours", "How long to hold; empty: until it is released."),
        "reason": text("Reason"),
        "days": number("Days", "What is older goes with *clean*."),
        "fresh": Param(False, type="boolean", title="Fresh", description="Ask agents anew, keep no results."),
    }
    return form

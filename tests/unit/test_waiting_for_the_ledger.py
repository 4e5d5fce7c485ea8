"""A ledger that does not answer costs a task that has not begun neither its work nor a try."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException
from jinja2 import Environment

from airflow_relay.core.completion import StageShape
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.hooks import ledger as ledger_hook
from airflow_relay.hooks.ledger import ASK_AGAIN_AFTER
from airflow_relay.item_context import current_item, forget_item, item_macro
from airflow_relay.ledger.engine import dispose_engines
from airflow_relay.ledger.errors import LedgerNotReadyError, LedgerUnreachableError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.guard import Guard
from support.pipelines import MemoryObjects

CONTEXT = {"dag_run": SimpleNamespace(dag_id="jobs__only", run_id="r", conf={}, clear_number=0)}
GUARD = Guard(
    pipeline=Pipeline("jobs", [Stage("only", status="asked", schedule="0 7 * * *")]),
    stage="only",
    shape=StageShape(("ask",), ("ask",), "ask"),
)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Make a ledger the deployment's."""

    def install(url: str) -> None:
        made = Ledger(url, MemoryObjects())
        monkeypatch.setattr(ledger_hook, "_ledger_for", lambda pid: made)

    forget_item()
    yield install
    forget_item()
    dispose_engines()


@pytest.fixture
def away(use) -> None:
    """Nobody listens on port 1."""
    use("postgresql+psycopg2://nobody@127.0.0.1:1/ledger")


def assert_asks_again_soon(caught: pytest.ExceptionInfo[AirflowRescheduleException]) -> None:
    left = caught.value.reschedule_date - datetime.now(timezone.utc)
    assert timedelta() < left <= ASK_AGAIN_AFTER


@pytest.mark.usefixtures("away")
def test_a_guarded_task_is_up_for_reschedule():
    with pytest.raises(AirflowRescheduleException) as caught:
        GUARD(CONTEXT)
    assert_asks_again_soon(caught)


@pytest.mark.usefixtures("away")
def test_a_template_that_names_the_item_is_never_rendered_without_it():
    template = Environment(autoescape=True).from_string("{{ item().key }}")
    with pytest.raises(AirflowRescheduleException) as caught:
        template.render(item=item_macro, **CONTEXT)
    assert_asks_again_soon(caught)


@pytest.mark.usefixtures("away")
def test_work_that_has_begun_meets_an_ordinary_error():
    with pytest.raises(LedgerUnreachableError, match="did not answer"):
        current_item(CONTEXT)


def test_a_ledger_without_tables_is_an_error_that_waiting_does_not_cure(use, tmp_path):
    use(f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(LedgerNotReadyError, match="airflow relay init"):
        GUARD(CONTEXT)

"""The item that a task works on, in Python (``current_item()``) and in templates (``{{ item() }}``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import ChainableUndefined, pass_context

from airflow_relay.core.item import Item, Run
from airflow_relay.core.naming import slug
from airflow_relay.hooks.ledger import get_ledger, wait_for_ledger
from airflow_relay.ledger import guarding, results, runs
from airflow_relay.ledger.errors import LedgerUnreachableError
from airflow_relay.ledger.results import PAYLOAD


class NoItemError(RuntimeError):
    """The task's run is bound to no item: an intake run, or a run started without ``item_id``."""


@dataclass(frozen=True)
class ItemView:
    """What a stage body may know of its item. Read from the ledger at run time, never from conf."""

    item: Item
    run: Run

    @property
    def key(self) -> str:
        """The user's own name for it."""
        return self.item.key

    @property
    def slug(self) -> str:
        """The key as a name that is safe in file names and URLs."""
        return slug(self.item.key)

    @property
    def pipeline(self) -> str:
        return self.item.pipeline

    @property
    def stage(self) -> str:
        return self.run.stage

    @property
    def status(self) -> str:
        """The pipeline's word for what is done (``"researched"``)."""
        return self.item.status

    @property
    def visit(self) -> int:
        """How often the item has entered this stage, from 1."""
        return self.run.visit

    @property
    def epoch(self) -> int:
        """The grant that this run holds."""
        return self.run.epoch

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        ledger = get_ledger()
        with ledger.read() as tx:
            found = results.of_item(tx, self.item.id)
        return results.latest(found, ledger.objects)

    @property
    def payload(self) -> Any:
        """What the intake registered the item with."""
        return self._values.get(PAYLOAD)

    @property
    def results(self) -> Mapping[str, Any]:
        """Stage → result of its latest visit."""
        return {stage: value for stage, value in self._values.items() if stage != PAYLOAD}

    def runs(self) -> list[Run]:
        """Every run of the item so far, oldest first, this one included."""
        with get_ledger().read() as tx:
            return runs.of_item(tx, self.item.id)

    def others(self, stage: str, *, passed: str, outcome: str | None = None) -> list[tuple[str, Any]]:
        """(key, result of ``stage``) of the pipeline's other items that have passed the stage ``passed``.

        :param outcome: only those that passed it with this outcome.
        """
        ledger = get_ledger()
        with ledger.read() as tx:
            found = results.of_others(
                tx, pipeline=self.pipeline, stage=stage, passed=passed, outcome=outcome, but=self.item.id
            )
        return [(key, results.value_of(result, ledger.objects)) for key, result in found]


class NoItem(ChainableUndefined):
    """Stands in for the item in templates of runs that have none: they render before the guard skips them.

    Whatever is asked of it, attribute, key or call, is empty again.
    """

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoItem:  # type: ignore[override] # jinja2 raises there
        return self


def current_item(context: Mapping[str, Any] | None = None) -> ItemView:
    """The item of the running task.

    :param context: Airflow's task context; by default the current one.
    :raises NoItemError: the run is bound to no item.
    """
    if context is None:
        from airflow.sdk import get_current_context  # noqa: PLC0415 - only inside a task

        context = get_current_context()
    run = context["dag_run"]
    view = _view(os.getpid(), run.dag_id, run.run_id)
    if view is None:
        raise NoItemError(f"Run {run.run_id} of {run.dag_id} has no item in the ledger.")
    return view


@lru_cache(maxsize=8)
def _view(pid: int, dag_id: str, run_id: str) -> ItemView | None:  # noqa: ARG001 - per process
    with get_ledger().read() as tx:
        run, item, _ = guarding.look(tx, dag_id, run_id)
    return None if run is None or item is None else ItemView(item, run)


def forget_item() -> None:
    """Read the item anew at the next call: the guard has just changed it."""
    _view.cache_clear()


@pass_context
def item_macro(context: Mapping[str, Any]) -> ItemView | NoItem:
    """``item()`` in templates. It renders before the guard decides, so a run without an item is no error.

    :raises AirflowRescheduleException: the ledger does not answer; the task waits for it.
    """
    run = context.get("dag_run")
    if run is None:
        return NoItem()
    try:
        return _view(os.getpid(), run.dag_id, run.run_id) or NoItem()
    except LedgerUnreachableError as error:
        raise wait_for_ledger(error) from error

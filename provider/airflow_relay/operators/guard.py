"""The guard in front of every task of a stage body: the rule decides, this module performs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException

from airflow_relay.clock import airflow_time, utcnow
from airflow_relay.core.completion import StageShape
from airflow_relay.core.guard import GuardAction
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger, wait_for_ledger
from airflow_relay.item_context import forget_item
from airflow_relay.ledger.errors import ItemWaitsError, LedgerIdentityError, LedgerUnreachableError
from airflow_relay.ledger.guarding import Guarded
from airflow_relay.ledger.store import Ledger

log: Final = logging.getLogger(__name__)

SLOT_RETRY: Final = timedelta(seconds=30)
"""How long a run that was cleared by hand waits before it asks again for its slots."""

START_OVER: Final = timedelta(seconds=5)
"""Not at once: a busy scheduler can take the first attempt's end for the second's, and fails the task."""

_SKIPS: Final = frozenset({GuardAction.SKIP_CLOSED, GuardAction.SKIP_SUPERSEDED})
_REFUSES: Final = frozenset({GuardAction.REFUSE_NEWER, GuardAction.REFUSE_FINISHED})
_REOPENS: Final = frozenset({GuardAction.REOPEN, GuardAction.REWIND})


class GuardRefusedError(RuntimeError):
    """The run may not work for its item; a retry would be refused again, so there is none."""


class StageTimeoutError(TimeoutError):
    """The run is past its stage's absolute deadline; a retry would be too, so there is none."""


@dataclass(frozen=True)
class Guard:
    """A ``pre_execute`` hook: asks the ledger, then lets the author's own hook run.

    :param author: the ``pre_execute`` that the task had.
    """

    pipeline: Pipeline
    stage: str
    shape: StageShape
    author: Callable[[Any], None] | None = None

    def __call__(self, context: Mapping[str, Any]) -> None:
        try:
            self.check(context)
        except LedgerUnreachableError as error:
            raise wait_for_ledger(error) from error
        if self.author is not None:
            self.author(context)

    def check(self, context: Mapping[str, Any]) -> None:
        """Return when the task may work.

        :raises AirflowSkipException: the run is closed or superseded, or an intake.
        :raises AirflowRescheduleException: a cleared run waits for its slots.
        :raises GuardRefusedError: an old or bulk clear, or a newer run is at work.
        :raises StageTimeoutError: the stage's deadline has passed.
        :raises LedgerUnreachableError: nobody can tell; the task then waits for the ledger, no try used.
        :raises LedgerIdentityError: this process reads another ledger than the one that granted the run.
        """
        ledger = get_ledger()
        guarded = self._ask(ledger, context)
        if guarded.decision.action is GuardAction.NO_ROW:
            guarded = self._start_by_hand(ledger, context, guarded)
        elif guarded.decision.action in _REOPENS:
            guarded = self._reopen(ledger, context)
            forget_item()
        self._obey(guarded)
        crash_point(CrashPoint.GUARD_STARTED)

    def _ask(self, ledger: Ledger, context: Mapping[str, Any]) -> Guarded:
        run = context["dag_run"]
        return ledger.ask_guard(
            dag_id=run.dag_id,
            run_id=run.run_id,
            clear_number=clear_number(context),
            pipeline=self.pipeline,
            shape=self.shape,
            is_entry_dag=self.stage == self.pipeline.entry.name,
            named_ledger=None if asked_item(context) else (run.conf or {}).get("ledger"),
            now=utcnow(),
        )

    def _reopen(self, ledger: Ledger, context: Mapping[str, Any]) -> Guarded:
        run, now = context["dag_run"], utcnow()
        return ledger.reopen(
            dag_id=run.dag_id,
            run_id=run.run_id,
            clear_number=clear_number(context),
            pipeline=self.pipeline,
            shape=self.shape,
            conditions=read_conditions(ledger, now),
            now=now,
        )

    def _start_by_hand(self, ledger: Ledger, context: Mapping[str, Any], guarded: Guarded) -> Guarded:
        key = asked_item(context)
        if key is None:
            raise AirflowSkipException(guarded.decision.reason)
        run, now = context["dag_run"], utcnow()
        conditions = read_conditions(ledger, now)
        if self.stage == self.pipeline.entry.name:
            ledger.register_one(self.pipeline, key, (run.conf or {}).get("payload"), now)
        try:
            adopted = ledger.adopt(
                pipeline=self.pipeline,
                key=key,
                stage=self.stage,
                dag_id=run.dag_id,
                run_id=run.run_id,
                clear_number=clear_number(context),
                shape=self.shape,
                conditions=conditions,
                now=now,
            )
        except ItemWaitsError as waits:
            raise AirflowSkipException(str(waits)) from waits
        if adopted is None:
            raise _wait(SLOT_RETRY)
        # The templates of this task were rendered while the run had no item: it starts over.
        raise _wait(START_OVER)

    def _obey(self, guarded: Guarded) -> None:
        decision = guarded.decision
        if not guarded.has_slots:
            log.info("%s It waits for free slots.", decision.reason)
            raise _wait(SLOT_RETRY)
        if decision.action in _SKIPS:
            raise AirflowSkipException(decision.reason)
        if decision.action in _REFUSES:
            raise GuardRefusedError(decision.reason)
        if decision.action is GuardAction.TIMED_OUT:
            raise StageTimeoutError(decision.reason)
        if decision.action is GuardAction.WRONG_LEDGER:
            raise LedgerIdentityError(decision.reason)
        log.info("Relay: %s", decision.reason)


def _wait(delay: timedelta) -> Exception:
    """Up for reschedule: no worker, no try used."""
    error: Exception = AirflowRescheduleException(airflow_time(utcnow() + delay))  # type: ignore[no-untyped-call]
    return error


def clear_number(context: Mapping[str, Any]) -> int:
    """How often the run was cleared; it is what tells a clear from a late second delivery."""
    return int(getattr(context["dag_run"], "clear_number", 0) or 0)


def asked_item(context: Mapping[str, Any]) -> str | None:
    """The item key that a person gave in the trigger form."""
    asked = (context["dag_run"].conf or {}).get("item_id")
    return None if asked in (None, "") else str(asked)

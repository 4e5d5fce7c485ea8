"""Retry, fail fast, and tell the ledger: the verdict on an error, before Airflow knows the task's state."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import RetryPolicy
from airflow.sdk.definitions.retry_policy import RetryAction, RetryDecision
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, AirflowSensorTimeout

from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass, Verdict, classify
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.core.limits import PRESSURE
from airflow_relay.hooks.conditions import adaptive_rules
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import closing
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.operators.guard import GuardRefusedError, StageTimeoutError

log: Final = logging.getLogger(__name__)

MAX_WAIT: Final = timedelta(hours=1)
"""A server that asks for more than this gets a failed task instead of a parked one; the sweep comes back."""
JITTER: Final = 0.1


class StageRetryPolicy(RetryPolicy):
    """Classify the error, record it in the ledger, and retry only what a retry can help.

    :param author: a policy that the task had of its own; it decides, this one still records.
    """

    def __init__(self, author: RetryPolicy | None = None) -> None:
        self.author = author

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Any = None,
    ) -> RetryDecision:
        """Fail at once for what is not retryable; otherwise wait as the server asks, with jitter."""
        if isinstance(exception, GuardRefusedError):
            return RetryDecision.fail(reason=str(exception))
        verdict = verdict_on(exception)
        decision = (
            decide(verdict, exception)
            if self.author is None
            else self.author.evaluate(exception, try_number, max_tries, context)
        )
        will_retry = decision.action is not RetryAction.FAIL and try_number <= max_tries
        if context is not None:
            record(context, verdict, will_retry=will_retry)
        return decision

    def serialize(self) -> dict[str, Any]:
        """Nothing but the name: the policy has no settings."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> StageRetryPolicy:  # noqa: ARG003 - the base's signature
        """The inverse of :meth:`serialize`."""
        return cls()


def verdict_on(exception: BaseException) -> Verdict:
    """The class of an exception; one that was classified where it was raised carries its verdict."""
    known = getattr(exception, "verdict", None)
    if isinstance(known, Verdict):
        return known
    if isinstance(exception, AirflowRuntimeError):
        # Airflow's own API answered so (the run was deleted under the task, a restart): no word of an agent.
        reason = scrub(f"Airflow's API server: {exception}")
        return Verdict(error_class=ErrorClass.UNKNOWN, retry_after=None, reason=reason)
    return classify(exception=exception)


def decide(verdict: Verdict, exception: BaseException) -> RetryDecision:
    """Retry or not, and when."""
    if isinstance(exception, StageTimeoutError) or not verdict.retryable:
        return RetryDecision.fail(reason=f"{verdict.error_class.value}: {verdict.reason}")
    if verdict.retry_after is None:
        return RetryDecision.default()
    wait = timedelta(seconds=verdict.retry_after)
    if wait > MAX_WAIT:
        return RetryDecision.fail(reason=f"{verdict.error_class.value}: asked to wait {wait}")
    spread = 1 + random.uniform(0, JITTER)  # noqa: S311 - spreads retries, guards nothing
    return RetryDecision.retry(delay=wait * spread, reason=f"{verdict.error_class.value}: {verdict.reason}")


def record(context: Mapping[str, Any], verdict: Verdict, *, will_retry: bool) -> None:
    """Write the verdict to the item's run. A ledger that is down must not hide the task's own error."""
    run, task = context["dag_run"], context["ti"].task_id
    try:
        ledger = get_ledger()
        found = ledger.find_run(run.dag_id, run.run_id)
        if found is None:
            return
        adaptive = adaptive_rules() if verdict.error_class in PRESSURE else {}
        with ledger.dispatcher() as tx:  # adaptive limits are moved under its lock
            closing.record_error(
                tx,
                found,
                error_class=verdict.error_class.value,
                reason=verdict.reason,
                task_id=task,
                will_retry=will_retry,
                now=utcnow(),
                adaptive=adaptive,
            )
    except LedgerError:
        log.exception("The error could not be recorded in the ledger; reconciliation will find the failure.")


def record_final(context: Mapping[str, Any]) -> None:
    """A failure callback, for the exceptions that Airflow never shows to a retry policy.

    It runs after the task's state was reported, perhaps after the hand-off: it only refines the reason.
    """
    exception = context.get("exception")
    if isinstance(exception, AirflowSensorTimeout):
        record(context, Verdict(ErrorClass.TIMEOUT, None, str(exception)), will_retry=False)
    elif isinstance(exception, AirflowFailException):
        verdict = verdict_on(exception)
        if verdict.retryable:  # the author has said that trying again would not help
            verdict = Verdict(ErrorClass.INVALID_REQUEST, None, verdict.reason or str(exception))
        record(context, verdict, will_retry=False)

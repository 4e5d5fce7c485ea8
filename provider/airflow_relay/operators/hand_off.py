"""The one bookkeeping task of a stage: close the run, free its slots, record, dispatch, trigger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from airflow.sdk import RetryPolicy
from airflow.sdk.definitions.retry_policy import RetryDecision

from airflow_relay import compat, metrics
from airflow_relay.clock import utcnow
from airflow_relay.core.completion import Completion, StageShape, completion_of
from airflow_relay.core.item import Item, Run
from airflow_relay.core.pipeline import End, Pipeline
from airflow_relay.core.states import ItemState, RunResult, RunState
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.conditions import Known, known_conditions, recent_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import governing, guarding, runs
from airflow_relay.ledger.errors import BadItemError
from airflow_relay.ledger.registering import found_by_intake
from airflow_relay.ledger.store import HandedOff, Ledger
from airflow_relay.links import ItemLogLink
from airflow_relay.operators.guard import asked_item, clear_number
from airflow_relay.operators.stage_result import with_result
from airflow_relay.operators.trigger import RelayTrigger, send_grants

log: Final = logging.getLogger(__name__)


class StageFailedError(RuntimeError):
    """The stage's work failed. The hand-off is done; it fails so that the run stays failed in the UI."""


class HandOffRetryPolicy(RetryPolicy):
    """A failed stage is handed off: there is nothing to try again. Anything else is."""

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - the base's signature
        max_tries: int,  # noqa: ARG002 - the base's signature
        context: Any = None,  # noqa: ARG002 - the base's signature
    ) -> RetryDecision:
        """Fail at once for a failed stage; otherwise the operator's own retries."""
        if isinstance(exception, StageFailedError | BadItemError):
            return RetryDecision.fail(reason=str(exception))
        return RetryDecision.default()


class _Seen(NamedTuple):
    """What a hand-off finds in the ledger.

    :param known: unless the stage was handed off before. Then these matter:
    :param following: the item's next grant.
    :param others_lost: whether there are grants whose sender seems lost.
    """

    run: Run | None
    item: Item | None
    known: Known | None
    following: Run | None = None
    others_lost: bool = False


class HandOff(RelayTrigger):
    """The teardown behind a stage's body. Idempotent: a second run of it finds the stage closed.

    :param pipeline: the declaration; the ledger is told of it when it has changed.
    :param stage: the stage's name.
    :param shape: which tasks are work, and whose return value is the result.
    :param intake: of the entry stage: finds new work and returns items (see ``Ledger.intake``).
    """

    operator_extra_links = [*RelayTrigger.operator_extra_links, ItemLogLink()]  # noqa: RUF012 - Airflow's own way

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        stage: str,
        shape: StageShape,
        intake: Callable[[], Iterable[Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self.pipeline = pipeline
        self.stage = stage
        self.shape = shape
        self.intake = intake
        kwargs.setdefault("retry_policy", HandOffRetryPolicy())
        # Not behind the work of everybody else, as the last task of a DAG would be: its run waits for it.
        kwargs.setdefault("weight_rule", "upstream")
        kwargs.setdefault("retries", 10)
        kwargs.setdefault("retry_delay", timedelta(seconds=5))
        kwargs.setdefault("retry_exponential_backoff", True)
        kwargs.setdefault("max_retry_delay", timedelta(minutes=5))
        super().__init__(trigger_dag_id=self._shown_target(), **kwargs)
        self.served_run: Run | None = None

    def _shown_target(self) -> str:
        declared = self.pipeline.stage(self.stage)
        stages = [t for t in declared.routes.values() if not isinstance(t, End)]
        return self.pipeline.dag_id(stages[0] if stages else self.stage)

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        """Hand off. Returns what an intake found, for a person who looks at the task's XCom.

        :raises StageFailedError: the stage's work failed; everything is recorded before.
        :raises TargetDagError: the next DAG is missing; everything is recorded and a retry sends again.
        """
        ledger = get_ledger()
        seen = self._look(ledger, context["dag_run"])
        run, item = seen.run, seen.item
        self.served_run = run
        completion = self._completion(context["dag_run"])
        if run is None or item is None:
            if asked_item(context) and completion.result is RunResult.FAILED:
                raise StageFailedError(f"{self.pipeline.name}.{self.stage} failed. The run has no item.")
            return self._take_in(ledger, context)
        text = "The run was closed before."
        if _was_handed_off(run, item):
            self._follow(ledger, seen, key=item.key)
        elif run.state is RunState.OPEN or completion.result is not RunResult.FAILED:
            completion, text = self._close(
                ledger, context, run, key=item.key, completion=completion, known=seen.known
            )
        else:
            self.send(ledger, [])
        log.info("%s", text)
        if completion.result is RunResult.FAILED:
            raise StageFailedError(f"{self.pipeline.name}.{self.stage} failed. {text}")
        return None

    def at_once(self, context: Mapping[str, Any]) -> None:
        """Hand off in the process of the stage's last task, which Airflow has just recorded as a success.

        So the next stage does not wait for the scheduler to come by this run, and for one more process. The
        task of this operator is skipped then. One that Airflow has queued by now runs all the same, finds the
        stage handed off, and ends.
        """
        ledger, dag_run = get_ledger(), context["dag_run"]
        seen = self._look(ledger, dag_run)
        run, item = seen.run, seen.item
        if run is None or item is None or run.state is not RunState.OPEN:
            return
        alone = len(self.shape.work) == 1
        completion = Completion(RunResult.SUCCESS) if alone else self._completion(dag_run)
        if completion.result is RunResult.SUCCESS:
            done, text = self._close(
                ledger, context, run, key=item.key, completion=completion, known=seen.known
            )
            log.info("Handed off. %s", text)
            if done.result is RunResult.SUCCESS:
                self.served_run = run
                self._spare(dag_run)

    def _spare(self, dag_run: Any) -> None:
        """Skip the task of this operator, for which nothing is left to do, and give it its links.

        Airflow would skip a queued one as well; the worker that has it would then report an error.
        """
        found = compat.task_states(dag_run.dag_id, [dag_run.run_id], task_ids=[self.task_id])
        if found.get(dag_run.run_id, {}).get(self.task_id) is None:
            compat.skip_task(self.task_id)
            for link in self.operator_extra_links:
                address = link.get_link(self, ti_key=None)  # type: ignore[arg-type] # ours go by the operator alone
                compat.push_link(dag_run, self.task_id, key=link.xcom_key, address=address)

    def _look(self, ledger: Ledger, dag_run: Any) -> _Seen:
        """One transaction: a hand-off that finds its stage handed off needs no other."""
        with ledger.read() as tx:
            run, item, _ = guarding.look(tx, dag_run.dag_id, dag_run.run_id)
            if run is not None and item is not None and _was_handed_off(run, item):
                return _Seen(run, item, None, runs.following(tx, run), runs.any_unconfirmed(tx, utcnow()))
            return _Seen(run, item, known_conditions(tx, utcnow(), targets=self._next_dags()))

    def _completion(self, dag_run: Any) -> Completion:
        states = compat.task_states(dag_run.dag_id, [dag_run.run_id]).get(dag_run.run_id, {})
        return completion_of(states, self.shape)

    def _next_dags(self) -> set[str]:
        return {self.pipeline.dag_id(s) for s in self.pipeline.stage(self.stage).successors}

    def _follow(self, ledger: Ledger, seen: _Seen, *, key: str) -> None:
        """Make up for a sender that was lost between the stage's hand-off and here."""
        lost = ledger.unconfirmed(utcnow()) if seen.others_lost else []
        following = seen.following
        if following is not None and following.state is RunState.OPEN and following.confirmed_at is None:
            self.send(ledger, [following], lost=lost, keys={following.item_id: key})
        else:
            self._send_for_others(ledger, lost)
            self.note_triggered([] if following is None else [following])

    def _close(
        self,
        ledger: Ledger,
        context: Mapping[str, Any],
        run: Run,
        *,
        key: str,
        completion: Completion,
        known: Known | None,
    ) -> tuple[Completion, str]:
        stored = None
        if completion.result is RunResult.SUCCESS:
            completion, stored = with_result(
                ledger,
                run,
                key=key,
                pipeline=self.pipeline,
                completion=completion,
                returned=self._returned(context),
                keeps_result=self.shape.result_task_id is not None,
            )
        now = utcnow()
        conditions = recent_conditions(ledger, now, targets=self._next_dags(), known=known)
        crash_point(CrashPoint.HAND_OFF_BEFORE_COMMIT)
        done = ledger.hand_off(
            run,
            pipeline=self.pipeline,
            completion=completion,
            stored=stored,
            clear_number=clear_number(context),
            conditions=conditions,
            now=now,
        )
        crash_point(CrashPoint.HAND_OFF_AFTER_COMMIT)
        self.send(ledger, done.grants, lost=done.lost, keys={run.item_id: key})
        _check_reachable(ledger, done, now)
        if not done.closed.already:
            metrics.run_ended(done.closed.run, result=completion.result, now=now)
        return completion, done.closed.text

    def send(
        self,
        ledger: Ledger,
        grants: Iterable[Run],
        *,
        lost: Iterable[Run] | None = None,
        keys: Mapping[int, str] | None = None,
    ) -> list[Run]:
        """Send the grants of this pipeline, then those of others and those whose sender was lost.

        :param lost: the latter, where they are claimed already.
        :param keys: see :func:`send_grants`.
        :raises TargetDagError: a DAG of this pipeline is missing or broken. One of another pipeline is only
            logged here: its own stages and the tick fail by it.
        """
        grants = list(grants)
        own = [g for g in grants if g.pipeline == self.pipeline.name]
        try:
            sent = send_grants(ledger, own, keys=keys)
            self.note_triggered(sent)
        finally:
            others = [g for g in grants if g.pipeline != self.pipeline.name]
            lost = ledger.unconfirmed(utcnow()) if lost is None else lost
            self._send_for_others(ledger, [*others, *lost])
        return sent

    def _send_for_others(self, ledger: Ledger, grants: Sequence[Run]) -> None:
        try:
            send_grants(ledger, grants)
        except compat.TargetDagError as error:
            log.warning("%s", error)

    def _returned(self, context: Mapping[str, Any]) -> Any:
        if self.shape.result_task_id is None:
            return None
        return context["ti"].xcom_pull(task_ids=self.shape.result_task_id, key="return_value")

    def _take_in(self, ledger: Ledger, context: Mapping[str, Any]) -> dict[str, Any] | None:
        """A run without an item: the entry stage's intake, or nothing to do."""
        if self.intake is None or asked_item(context):
            return None
        skipped = ledger.intake_must_wait(self.pipeline, utcnow())
        if skipped is not None:
            log.info("The intake does nothing: %s", skipped)
            return {"skipped": skipped}
        found = found_by_intake(self.intake())
        now = utcnow()
        conditions = recent_conditions(ledger, now, targets=[self.pipeline.dag_id(self.stage)])
        registered, grants = ledger.intake(self.pipeline, found, conditions, now)
        crash_point(CrashPoint.HAND_OFF_AFTER_COMMIT)
        log.info(
            "%d new items, %d known, %d granted", len(registered.new), len(registered.known), len(grants)
        )
        self.send(ledger, grants)
        return {"new": list(registered.new), "known": len(registered.known), "granted": len(grants)}


@dataclass(frozen=True, eq=False)
class AtOnce:
    """A success callback of a stage's last task: hands off without waiting for the hand-off's own task."""

    hand_off: HandOff

    def __call__(self, context: Mapping[str, Any]) -> None:
        try:
            self.hand_off.at_once(context)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task does it again, and fails by it
            log.warning(
                "Not handed off yet (%s: %s): the task %r does it.",
                type(error).__name__,
                error,
                self.hand_off.task_id,
            )


def _was_handed_off(run: Run, item: Item) -> bool:
    """Whether the run has ended well and its item has gone on; one that still waits is worth a dispatch."""
    return (
        run.state is RunState.CLOSED
        and run.result in (RunResult.SUCCESS, RunResult.SKIPPED)
        and item.state is not ItemState.READY
    )


def _check_reachable(ledger: Ledger, done: HandedOff, now: datetime) -> None:
    """A retry finds its item waiting and not granted while the next DAG is held: it has to fail again.

    :raises TargetDagError: why the DAG is held.
    """
    item = done.closed.item
    if item.state is not ItemState.READY or any(grant.item_id == item.id for grant in done.grants):
        return
    with ledger.read() as tx:
        hold = governing.holds(tx, now).get(item.dag_id)
    if hold is not None:
        raise compat.TargetDagError(hold.reason)

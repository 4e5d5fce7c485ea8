"""Run a job on a remote agent server, pay for it once, and wait for it without a worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from random import random
from typing import Any, ClassVar, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass, Verdict
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.agent import AGENT_CONN_ID, AgentClient, AgentHook
from airflow_relay.operators.agent_attempt import AgentAttempt, OnOrphan
from airflow_relay.operators.agent_job_errors import AgentJobCancelledError, AgentJobContactLostError
from airflow_relay.operators.agent_job_records import Asked, LedgerJobs, records_for
from airflow_relay.protocols.base import Snapshot
from airflow_relay.triggers.agent_job import ENDED_STATES, AgentJobTrigger
from airflow_relay.triggers.pacing import Pace

DEFAULT_TIMEOUT: Final = timedelta(hours=24)
SLACK: Final = timedelta(minutes=10)
"""How much later than the job's deadline Airflow itself ends the wait: no triggerer was there to do it."""
_LABEL_LENGTH: Final = 512
_MOST_LABELS: Final = 15
"""Of the 16 pairs that the Responses API takes; the protocol adds the job's key."""


class AgentJobOperator(BaseOperator):
    """Submit a job to an agent server, wait for it deferred, and return its result.

    One job is paid for, whatever happens to workers and triggerers: the intent is recorded before the submit
    and the reference after it, and any later attempt attaches to the job, or gets its kept result, as long as
    the input is the same. A job that failed, was cancelled or lost gets a successor. A clear attaches to the
    running job as well; for a fresh one drop the kept result.

    Returns ``{"text", "data", "usage", "job"}``; of more than 64 KB only a reference, see
    ``airflow_relay.operators.agent_job_results.full_result``. Inside a Relay stage the ledger keeps the job,
    elsewhere Airflow's task state store, for the life of the DAG run.

    :param input: the prompt, or a list of the protocol's input items; other JSON is sent as JSON text.
    :param model: model or agent; ``None`` leaves it to the server.
    :param instructions: system prompt.
    :param metadata: labels on the server; not part of what makes two jobs the same.
    :param options: further fields of the protocol's request.
    :param protocol: ``"responses"``, ``"a2a"``, ``"openclaw"``, ``"http202"``, or an installed one.
    :param protocol_options: the protocol's settings, over those of the connection's extra ``protocol``.
    :param conn_id: connection of the agent server; see ``AgentHook``.
    :param poll_interval: seconds between polls.
    :param timeout: from submit to end; past it, or past the stage's deadline, the job is cancelled. Airflow's
        ``execution_timeout`` starts anew after each deferral, so it is no substitute.
    :param deferrable: ``False`` waits in the worker.
    :param on_kill_cancel: whether marking the task success or failed cancels the job. A clear never does.
    :param on_orphan: ``"resubmit"`` or ``"fail"``, for a submit that went unanswered on a server that cannot
        be asked for it.
    :param fail_on_empty: whether "done" without any output is a failure.
    :param lost_contact_after: how long polls may fail before the attempt ends; the next one attaches again.
    :raises AgentJobError: one of its kinds, each with a verdict for the retry policy.
    """

    template_fields: Sequence[str] = ("input", "model", "instructions", "metadata", "options", "conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"metadata": "json", "options": "json"}
    ui_color = "#e4f0e8"

    def __init__(
        self,
        *,
        input: Any,  # noqa: A002 - the word of every agent API
        model: str | None = None,
        instructions: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        protocol: str = "responses",
        protocol_options: Mapping[str, Any] | None = None,
        conn_id: str = AGENT_CONN_ID,
        poll_interval: float = 15.0,
        timeout: timedelta = DEFAULT_TIMEOUT,
        deferrable: bool = True,
        on_kill_cancel: bool = True,
        on_orphan: str = OnOrphan.RESUBMIT.value,
        fail_on_empty: bool = True,
        lost_contact_after: timedelta = timedelta(minutes=15),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input = input
        self.model = model
        self.instructions = instructions
        self.metadata = metadata
        self.options = options
        self.protocol = protocol
        self.protocol_options = protocol_options
        self.conn_id = conn_id
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.deferrable = deferrable
        self.on_kill_cancel = on_kill_cancel
        self.on_orphan = on_orphan
        self.fail_on_empty = fail_on_empty
        self.lost_contact_after = lost_contact_after
        self._running: tuple[AgentAttempt, Mapping[str, Any]] | None = None
        self._killed: threading.Event | None = None

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Submit or attach, then wait."""
        return self._begin(context)

    def resume(self, context: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Go on after the deferral. The event only says "look": what counts is the job itself."""
        self.log.info("Resumed: %s", (event or {}).get("text") or "no event")
        with self._attempt(context) as attempt:
            crash_point(CrashPoint.JOB_RESUMED)
            if attempt.find():
                return self._conclude(context, attempt, attempt.look(tries=3))
        return self._begin(context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]
    ) -> Any:
        """As Airflow's, but a deferral that failed is no news about the job: look at it first."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)  # type: ignore[arg-type]
        except TaskDeferralTimeout:
            self.log.warning("The deferral timed out: was a triggerer running?")
            return self.resume(context)
        except TaskDeferralError as error:
            return self._after_broken_trigger(context, error)

    def _after_broken_trigger(self, context: Mapping[str, Any], error: Exception) -> dict[str, Any]:
        with self._attempt(context) as attempt:
            if attempt.find():
                snapshot = attempt.look(tries=3)
                if snapshot.terminal:
                    return attempt.finish(snapshot)
        # Deferring at once would meet the same error: let the retry's delay lie between.
        text = f"The trigger broke; the job may still run, and the next attempt attaches to it: {error}"
        raise AgentJobContactLostError(text, Verdict(ErrorClass.UNKNOWN, None, text)) from error

    def on_kill(self) -> None:
        """Cancel the job when a person has ended the task; not when the worker is shut down."""
        if self._killed is not None:
            self._killed.set()
        if self._running is None or not self.on_kill_cancel:
            return
        attempt, context = self._running
        state = _task_state(context)
        if attempt.job is None or attempt.job.ref is None or state not in ENDED_STATES:
            self.log.info("The task is %s in Airflow, so its agent job goes on.", state)
            return
        # A client of its own: this may interrupt the other in the middle of a call.
        with AgentClient(attempt.client.settings) as client:
            attempt.client = client
            snapshot = attempt.cancel()
            if snapshot is not None and snapshot.terminal:
                attempt.cancelled_by_person(snapshot)

    def _begin(self, context: Mapping[str, Any]) -> dict[str, Any]:
        with self._attempt(context) as attempt:
            snapshot = attempt.start()
            if snapshot is None:
                return attempt.kept()
            if not snapshot.terminal:
                # A trigger that fires within seconds of the deferral can be misread as a failure.
                snapshot = self._glance(attempt, snapshot)
            return self._conclude(context, attempt, snapshot)

    @contextmanager
    def _attempt(self, context: Mapping[str, Any]) -> Iterator[AgentAttempt]:
        """Everything checked, nothing sent yet."""
        settings = AgentHook(self.conn_id).settings()
        records = records_for(context)
        with AgentClient(settings) as client:
            attempt = AgentAttempt(
                client=client,
                records=records,
                asked=Asked(
                    protocol=self.protocol,
                    conn_id=self.conn_id,
                    input=input_of(self.input),
                    model=self.model,
                    instructions=self.instructions,
                    options=dict(self.options or {}),
                ),
                metadata=_labels(self.metadata, records.labels),
                own_options=self._protocol_options(),
                timeout=self.timeout,
                on_orphan=OnOrphan(self.on_orphan),
            )
            self._running = (attempt, context)
            try:
                yield attempt
            finally:
                self._running = None

    def _protocol_options(self) -> dict[str, Any]:
        options = dict(self.protocol_options or {})
        if not self.fail_on_empty:
            options.setdefault("allow_empty", True)
        return options

    def _glance(self, attempt: AgentAttempt, snapshot: Snapshot) -> Snapshot:
        try:
            return attempt.look()
        except AgentJobContactLostError as error:
            self.log.warning("%s", error)
            return snapshot

    def _conclude(
        self, context: Mapping[str, Any], attempt: AgentAttempt, snapshot: Snapshot
    ) -> dict[str, Any]:
        if snapshot.terminal:
            return attempt.finish(snapshot)
        if utcnow() >= attempt.deadline:
            return attempt.give_up()
        if self.deferrable:
            self._defer(context, attempt, snapshot)
        return self._wait(attempt, snapshot)

    def _defer(self, context: Mapping[str, Any], attempt: AgentAttempt, snapshot: Snapshot) -> None:
        job = attempt.job
        assert job is not None, "start() or find() comes first"
        assert job.ref is not None, "only a submitted job is waited for"
        trigger = AgentJobTrigger(
            conn_id=self.conn_id,
            ref=job.ref,
            deadline=attempt.deadline.isoformat(),
            interval=max(self.poll_interval, attempt.protocol.min_poll_interval),
            attempt=str(context["ti"].id),
            key=job.key if isinstance(attempt.records, LedgerJobs) else None,
            patience=self.lost_contact_after.total_seconds(),
            hint=snapshot.poll_after,
            since=utcnow().isoformat(),
            cancel_on_kill=self.on_kill_cancel,
        )
        crash_point(CrashPoint.JOB_DEFERRING)
        self.defer(
            trigger=trigger,
            method_name=self.resume.__name__,
            timeout=max(attempt.deadline - utcnow(), timedelta()) + SLACK,
        )

    def _wait(self, attempt: AgentAttempt, snapshot: Snapshot) -> dict[str, Any]:
        interval = max(self.poll_interval, attempt.protocol.min_poll_interval)
        pace = Pace(interval, attempt.deadline, self.lost_contact_after, random)
        wait = pace.first(utcnow(), snapshot.poll_after)
        killed = self._killed = threading.Event()
        while True:
            if killed.wait(wait):
                verdict = Verdict(ErrorClass.CANCELLED, None, "cancelled: the task was stopped")
                raise AgentJobCancelledError(
                    f"The task was stopped while agent job {attempt.name} ran.", verdict
                )
            try:
                snapshot = attempt.look()
            except AgentJobContactLostError as lost:
                longer = pace.after_failure(utcnow(), lost.verdict.retry_after)
                if longer is None or not lost.verdict.retryable:
                    raise
                wait = longer
            else:
                if snapshot.terminal:
                    return attempt.finish(snapshot)
                wait = pace.after_answer(utcnow(), snapshot.poll_after)
            if utcnow() >= attempt.deadline:
                return attempt.give_up()


def input_of(value: Any) -> str | list[Any]:
    """The input as the protocols take it.

    Templates that are rendered to native values turn JSON text into dicts and digits into numbers; what is
    no list of input items becomes JSON text again.

    :raises ValueError: there is none, or it is no JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("An agent job needs an input; the template or the task before gave None.")
    if isinstance(value, list) and value and all(_is_item(part) for part in value):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The input of an agent job must be text or JSON: {error}") from error


def _is_item(part: Any) -> bool:
    return isinstance(part, dict) and bool({"type", "role"} & part.keys())


def _labels(own: Mapping[str, Any] | None, given: Mapping[str, str]) -> dict[str, str]:
    labels = {str(name): str(value) for name, value in (own or {}).items()}
    for name, value in given.items():
        if len(labels) < _MOST_LABELS:
            labels.setdefault(name, value[:_LABEL_LENGTH])
    return labels


def _task_state(context: Mapping[str, Any]) -> str | None:
    ti, run = context["ti"], context["dag_run"]
    index = getattr(ti, "map_index", -1)
    name = ti.task_id if index in (None, -1) else f"{ti.task_id}_{index}"
    states = compat.task_states(run.dag_id, [run.run_id]).get(run.run_id, {})
    return "removed" if name not in states else None if states[name] is None else str(states[name])

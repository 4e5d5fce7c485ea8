"""The life of one agent job within one attempt of a task: intent, submit, re-attach, look, cancel, end."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

import httpx

from airflow_relay.core.errors import ErrorClass, Verdict
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.agent import AgentClient
from airflow_relay.ledger.jobs import Job, JobEnd, JobPhase, JobStep
from airflow_relay.operators import agent_job_errors as errors
from airflow_relay.operators.agent_job_records import Asked, JobRecords
from airflow_relay.operators.agent_job_results import returned
from airflow_relay.protocols.base import (
    AgentProtocol,
    HttpCall,
    HttpReply,
    JobRef,
    JobRejected,
    JobRequest,
    Phase,
    ReplyError,
    Snapshot,
    TransientReply,
)
from airflow_relay.protocols.errors import InvalidRequest
from airflow_relay.protocols.registry import get_protocol

log: Final = logging.getLogger(__name__)

NO_ANSWER: Final = (httpx.HTTPError, OSError)
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""After these the server has not seen the request."""
_ANY_KEY: Final = "0" * 32


class OnOrphan(str, Enum):
    """What to do about a submit that went unanswered, on a server that cannot be asked for it."""

    RESUBMIT = "resubmit"  # send it again under the same key: one job where the server honours keys
    FAIL = "fail"  # stop and let a person look: never two jobs


@dataclass(kw_only=True)
class AgentAttempt:
    """One attempt's dealings with its job.

    :param asked: what the job is asked; its fingerprint decides what is the same job.
    :param metadata: labels for the server's dashboard; no input.
    :param own_options: the protocol's settings as the task gives them; kept with the reference.
    :param timeout: from the submit to the job's own deadline.
    """

    client: AgentClient
    records: JobRecords
    asked: Asked
    metadata: Mapping[str, str]
    own_options: Mapping[str, Any]
    timeout: timedelta
    on_orphan: OnOrphan
    protocol: AgentProtocol = field(init=False)
    job: Job | None = field(init=False, default=None)
    discovered: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be sent, before anything is written or sent.

        :raises InvalidRequest: the protocol, its settings or the request.
        """
        options = {**self.client.settings.protocol, **self.own_options}
        self.protocol = get_protocol(self.asked.protocol, options)
        self.client.settings.url(self.protocol.submit(self._request(_ANY_KEY)))

    # -- beginning

    def start(self) -> Snapshot | None:
        """Make sure that there is a job, and look at it; ``None``: its result is kept, see :meth:`kept`."""
        asked = self.asked
        begun = self.records.begin(
            fingerprint=asked.fingerprint(), protocol=asked.protocol, conn_id=asked.conn_id
        )
        self.job = begun.job
        if begun.replaced is not None:
            self._cancel_surplus(begun.replaced.ref, "its input has changed or it is being cancelled")
        if begun.step is JobStep.KEPT:
            log.info("The result of agent job %s is kept: no new job.", begun.job.key)
            return None
        if begun.step is JobStep.ATTACH:
            log.info("Attached to agent job %s of an earlier attempt.", self.name)
            return self.look()
        crash_point(CrashPoint.JOB_INTENDED)
        return self._recover() if begun.step is JobStep.RECOVER else self._submit()

    def find(self) -> bool:
        """Take up the job that this attempt submitted before it was deferred; false when there is none."""
        job = self.records.current()
        if job is None or not job.is_open or job.ref is None or job.attempt != self.records.attempt:
            return False
        self.job = job
        return True

    def _submit(self) -> Snapshot:
        job = self._known_job
        try:
            self._discover()
            request = self._request(job.key)
            snapshot = self.protocol.parse_submit(self.send(self.protocol.submit(request)))
        except (ReplyError, InvalidRequest, *NO_ANSWER) as error:
            raise self._not_submitted(error) from error
        crash_point(CrashPoint.JOB_SUBMITTED)
        if snapshot.ref is None:
            return snapshot  # finished in the reply, and the server keeps nothing to ask for
        return self._acknowledged(snapshot)

    def _not_submitted(self, error: Exception) -> errors.AgentJobSubmitError:
        """Close the intent when there is certainly no job; otherwise leave it for the next attempt."""
        failure = errors.submit_error(error, key=self.name)
        unclear = isinstance(error, NO_ANSWER) and not isinstance(error, _NEVER_SENT)
        if not (unclear or (isinstance(error, TransientReply) and error.ambiguous)):
            self._end(JobPhase.FAILED, f"Agent job {self.name} was not accepted", verdict=failure.verdict)
        return failure

    def _acknowledged(self, snapshot: Snapshot) -> Snapshot:
        ref = self._ref_json(snapshot.ref)
        recorded = self.records.submitted(self._known_job, ref)
        self.job = recorded
        crash_point(CrashPoint.JOB_RECORDED)
        if recorded.ref is None or recorded.ref["id"] == ref["id"]:
            log.info("Submitted agent job %s with key %s.", self.name, recorded.key)
            return snapshot
        self._cancel_surplus(ref, "another attempt was faster")
        return self.look()

    def _recover(self) -> Snapshot:
        """Look for the job whose acknowledgement nobody kept, before anything is sent a second time."""
        job = self._known_job
        can_tell, found = self._find()
        if found is not None:
            return self._acknowledged(found)
        if can_tell or self.protocol.capabilities.idempotent_submit or self.on_orphan is OnOrphan.RESUBMIT:
            log.warning("Sending job %s again under its key; its first submit was not recorded.", job.key)
            return self._submit()
        text = (
            f"Whether agent job {job.key} was submitted is unknown, and the server cannot be asked. "
            "Look there; then drop it for a fresh job, or set on_orphan='resubmit'."
        )
        raise errors.AgentJobOrphanedError(text, Verdict(ErrorClass.NOT_FOUND, None, text))

    def _find(self) -> tuple[bool, Snapshot | None]:
        """Whether the server can tell, and the job with our key if it has one."""
        request = self._request(self._known_job.key)
        try:
            self._discover()
            call = self.protocol.find(request)
            if call is None:
                return False, None
            return True, self.protocol.parse_find(request, self.send(call))
        except JobRejected as error:
            log.info("The server has no look-up by key: %s", error.message)
            return False, None
        except (TransientReply, InvalidRequest, *NO_ANSWER) as error:
            raise errors.submit_error(error, key=self.name) from error

    def _discover(self) -> None:
        """Let the server say how it wants to be spoken to, where the protocol has that and nobody set it."""
        discover = getattr(self.protocol, "discover", None)
        if (
            discover is None
            or self.discovered
            or "endpoint" in {**self.client.settings.protocol, **self.own_options}
        ):
            return
        reply = self.send(discover())
        parse_card = self.protocol.parse_card  # type: ignore[attr-defined]
        self.protocol = parse_card(reply, base=self.client.settings.base)
        self.discovered = True

    # -- watching

    def look(self, *, tries: int = 1) -> Snapshot:
        """Ask the server once more.

        :raises AgentJobContactLostError: no usable answer; the reference stays.
        """
        ref = self._ref
        for rest in reversed(range(tries)):
            try:  # a reply that is no news is what the loop is for
                snapshot = self.protocol.parse_poll(ref, self.send(self.protocol.poll(ref)))
            except (TransientReply, *NO_ANSWER) as error:  # noqa: PERF203 - see above
                if not rest:
                    raise errors.contact_lost(error, name=self.name) from error
            except (JobRejected, InvalidRequest) as error:
                raise errors.contact_lost(error, name=self.name) from error
            else:
                return self._followed(ref, snapshot)
        raise AssertionError("unreachable")

    def _followed(self, ref: JobRef, snapshot: Snapshot) -> Snapshot:
        """Keep a new address that the server gave for the job, and go there when it says "now"."""
        if snapshot.ref is None or snapshot.ref == ref:
            return snapshot
        moved = self._ref_json(snapshot.ref)
        self.records.moved(self._known_job, moved)
        self.job = _with_ref(self._known_job, moved)
        return self.look() if snapshot.poll_after == 0 else snapshot

    @property
    def deadline(self) -> datetime:
        """When the job has to be over: its own timeout or the stage's deadline, whichever is first."""
        job = self._known_job
        own = (job.submitted_at or job.intended_at) + self.timeout
        return own if self.records.deadline is None else min(own, self.records.deadline)

    # -- ending

    def kept(self) -> dict[str, Any]:
        """The result that an earlier attempt has paid for."""
        return returned(self._known_job)

    def finish(self, snapshot: Snapshot) -> dict[str, Any]:
        """Record the end and return the result.

        :raises AgentJobFailedError: one of its kinds, for every end that is no success.
        """
        if snapshot.phase is Phase.SUCCEEDED:
            return self._succeed(snapshot)
        failure = errors.error_of(snapshot, name=self.name)
        if snapshot.phase is Phase.BLOCKED:
            self._cancel_surplus(self._known_job.ref, "it waits for what Relay does not give")
        self._end(JobPhase(snapshot.phase.value), str(failure), verdict=failure.verdict, snapshot=snapshot)
        raise failure

    def _succeed(self, snapshot: Snapshot) -> dict[str, Any]:
        job = self._known_job
        value: dict[str, Any] = {"text": snapshot.text, "data": snapshot.data}
        if snapshot.artifacts:
            value["artifacts"] = snapshot.artifacts
        value["usage"] = snapshot.usage.to_json() if snapshot.usage else None
        stored = self.records.prepare(job, value)
        crash_point(CrashPoint.JOB_ENDING)
        self._end(JobPhase.SUCCEEDED, f"Agent job {self.name} succeeded", snapshot=snapshot, stored=stored)
        crash_point(CrashPoint.JOB_ENDED)
        return returned(_with_result(job, stored, snapshot))

    def give_up(self) -> dict[str, Any]:
        """Cancel a job that is past its deadline; returns its result if it ended at the last moment.

        :raises AgentJobTimeoutError: it did not.
        """
        snapshot = self.cancel()
        if snapshot is not None and snapshot.phase is Phase.SUCCEEDED:
            return self._succeed(snapshot)
        verdict = Verdict(
            ErrorClass.TIMEOUT, None, f"timeout: agent job {self.name} ran past {self.deadline}"
        )
        how = "was cancelled" if snapshot is not None and snapshot.terminal else "could not be cancelled yet"
        text = f"Agent job {self.name} did not end by {self.deadline:%Y-%m-%d %H:%M:%S} UTC and {how}."
        if snapshot is not None and snapshot.terminal:
            self._end(JobPhase.CANCELLED, text, verdict=verdict, snapshot=snapshot)
        raise errors.AgentJobTimeoutError(text, verdict)

    def cancel(self) -> Snapshot | None:
        """Cancel the job if it is this attempt's; ``None`` when that is not so or not confirmed.

        An unconfirmed cancel stays recorded as asked for, and the tick repeats it.
        """
        ref = self._ref
        if not self.records.claim_cancel(self._known_job):
            return None
        call = self.protocol.cancel(ref)
        if call is None:
            # Nothing can stop it; it is given up, so that the next attempt does not wait for it again.
            return Snapshot(ref, Phase.CANCELLED, "abandoned")
        try:
            snapshot = self.protocol.parse_cancel(ref, self.send(call))
            return snapshot if snapshot.terminal else self.look(tries=2)
        except (ReplyError, errors.AgentJobContactLostError, *NO_ANSWER) as error:
            log.warning("The cancel of agent job %s is not confirmed: %s", self.name, error)
            return None

    def cancelled_by_person(self, snapshot: Snapshot) -> None:
        """Record the end of a job whose running task a person ended."""
        if snapshot.phase is not Phase.SUCCEEDED:
            verdict = Verdict(ErrorClass.CANCELLED, None, "cancelled: a person ended the task in Airflow")
            text = f"Agent job {self.name} cancelled: a person ended the task"
            self._end(JobPhase.CANCELLED, text, verdict=verdict, snapshot=snapshot)

    def _cancel_surplus(self, ref_json: Mapping[str, Any] | None, why: str) -> None:
        """Try to stop a job that nobody waits for; when that fails it costs money, but nothing is wrong."""
        if ref_json is None:
            return
        ref = JobRef.from_json(ref_json)
        call = self.protocol.cancel(ref) if ref.protocol == self.protocol.name else None
        if call is None:
            return
        try:
            snapshot = self.protocol.parse_cancel(ref, self.send(call))
            log.info("Cancelled agent job %s (%s): %s.", ref.id, snapshot.phase.value, why)
        except (ReplyError, InvalidRequest, *NO_ANSWER) as error:
            log.warning("Agent job %s could not be cancelled (%s): %s", ref.id, why, error)

    def _end(
        self,
        phase: JobPhase,
        text: str,
        *,
        verdict: Verdict | None = None,
        snapshot: Snapshot | None = None,
        stored: Any = None,
    ) -> None:
        usage = snapshot.usage if snapshot else None
        end = JobEnd(
            phase=phase,
            text=text,
            error_class=verdict.error_class.value if verdict else None,
            error_reason=verdict.reason if verdict else None,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            cost=None if usage is None or usage.cost is None else repr(usage.cost),
            stored=stored,
        )
        self.records.ended(self._known_job, end)

    # -- small things

    def send(self, call: HttpCall) -> HttpReply:
        """Send one call."""
        return self.client.send(call)

    @property
    def name(self) -> str:
        """The server's id of the job, or its key while there is none."""
        job = self._known_job
        return str(job.ref["id"]) if job.ref else job.key

    @property
    def _known_job(self) -> Job:
        assert self.job is not None, "start() or find() comes first"
        return self.job

    @property
    def _ref(self) -> JobRef:
        ref = self._known_job.ref
        assert ref is not None, "only a submitted job is looked at"
        return JobRef.from_json(ref)

    def _ref_json(self, ref: JobRef | None) -> dict[str, Any]:
        assert ref is not None, "only an acknowledged job has a reference"
        options = {"options": dict(self.own_options)} if self.own_options else {}
        return {**ref.to_json(), **options}

    def _request(self, key: str) -> JobRequest:
        asked = self.asked
        return JobRequest(
            input=asked.input,
            key=key,
            model=asked.model,
            instructions=asked.instructions,
            metadata=self.metadata,
            options=asked.options,
        )


def _with_ref(job: Job, ref: Mapping[str, Any]) -> Job:
    return dataclasses.replace(job, ref=ref)


def _with_result(job: Job, stored: Any, snapshot: Snapshot) -> Job:
    usage = snapshot.usage
    return dataclasses.replace(
        job,
        phase=JobPhase.SUCCEEDED,
        result=stored.value,
        result_ref=stored.ref,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )

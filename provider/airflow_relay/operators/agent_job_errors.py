"""How an agent job can end otherwise than well, with the verdict that the retry policy reads."""

from __future__ import annotations

from typing import Any, Final

from airflow_relay.core.errors import ErrorClass, Verdict, classify
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.protocols.base import JobError, Phase, ReplyError, Snapshot, TransientReply


class AgentJobError(RuntimeError):
    """Base of them all.

    :param verdict: what kind of failure it is, and whether another try may help.
    """

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict


class AgentJobSubmitError(AgentJobError):
    """The job was not accepted, or nobody knows: the next attempt looks it up or sends the same key again."""


class AgentJobOrphanedError(AgentJobError):
    """An earlier submit went unanswered, the server cannot be asked, and ``on_orphan`` is ``"fail"``."""


class AgentJobContactLostError(AgentJobError):
    """The server does not tell how the job is. It may still run; its reference is kept, and the next attempt
    attaches to it.
    """


class AgentJobFailedError(AgentJobError):
    """The job ended in error. The next attempt submits a new one, if the verdict lets there be one."""


class AgentJobEmptyError(AgentJobFailedError):
    """The server says that the job is done, but there is no output. Never taken for success by itself."""


class AgentJobIncompleteError(AgentJobFailedError):
    """The output was cut off; a part of it is no result."""


class AgentJobRefusedError(AgentJobFailedError):
    """The agent, or a filter before or behind it, declined."""


class AgentJobBlockedError(AgentJobFailedError):
    """The agent waits for an input, a permission or a tool result that Relay does not give."""


class AgentJobCancelledError(AgentJobFailedError):
    """Somebody stopped the job."""


class AgentJobLostError(AgentJobFailedError):
    """The server once acknowledged the job and no longer knows it."""


class AgentJobTimeoutError(AgentJobError, TimeoutError):
    """The job did not end by its deadline and was cancelled."""


_BY_PHASE: Final[dict[Phase, type[AgentJobFailedError]]] = {
    Phase.FAILED: AgentJobFailedError,
    Phase.INCOMPLETE: AgentJobIncompleteError,
    Phase.REFUSED: AgentJobRefusedError,
    Phase.BLOCKED: AgentJobBlockedError,
    Phase.CANCELLED: AgentJobCancelledError,
    Phase.LOST: AgentJobLostError,
}
_REFUSALS: Final = frozenset({ErrorClass.REFUSAL, ErrorClass.CONTENT_POLICY})
_WORDS: Final = 800
"""Characters of a server's own words in a message; they are scrubbed, the job's name is not."""
EMPTY_OUTPUT: Final = "empty_output"
"""The error code that protocols give a finished job without output."""


def error_of(snapshot: Snapshot, *, name: str) -> AgentJobFailedError:
    """The error for a job that ended otherwise than well.

    :param name: how the job is called in the message.
    """
    verdict = verdict_of(snapshot)
    kind = _BY_PHASE[snapshot.phase]
    if snapshot.error is not None and snapshot.error.code == EMPTY_OUTPUT:
        kind = AgentJobEmptyError
    words = snapshot.error.message if snapshot.error and snapshot.error.message else verdict.reason
    status = f" ({snapshot.raw_status})" if snapshot.raw_status else ""
    return kind(f"Agent job {name} is {snapshot.phase.value}{status}: {scrub(words, _WORDS)}", verdict)


def verdict_of(snapshot: Snapshot) -> Verdict:
    """The class of a job's end; where the phase itself decides, it has the last word."""
    error = snapshot.error or JobError()
    if snapshot.phase is Phase.CANCELLED:
        return Verdict(ErrorClass.CANCELLED, None, "cancelled: the job was stopped on the server")
    if snapshot.phase is Phase.LOST:
        # Most servers forget their jobs when they restart, so a new job has good prospects.
        return Verdict(ErrorClass.SERVER_ERROR, None, scrub(f"server_error: {error.message}"))
    if error.code == EMPTY_OUTPUT:
        return Verdict(ErrorClass.SERVER_ERROR, None, f"server_error: {error.message}")
    found = classify(status=_failure_status(error), body=_body(snapshot, error))
    if snapshot.phase is Phase.REFUSED and found.error_class not in _REFUSALS:
        return Verdict(ErrorClass.REFUSAL, None, scrub(f"refusal: {error.message}"))
    if snapshot.phase is Phase.BLOCKED:
        blocked = (
            ErrorClass.AUTH if "auth" in (snapshot.raw_status or "").lower() else ErrorClass.INVALID_REQUEST
        )
        return Verdict(blocked, None, scrub(f"{blocked.value}: blocked, {error.message}"))
    return found


def _failure_status(error: JobError) -> int | None:
    return error.status if error.status is not None and error.status >= 400 else None


def _body(snapshot: Snapshot, error: JobError) -> Any:
    if snapshot.phase is Phase.INCOMPLETE:
        return {"status": "incomplete", "incomplete_details": error.body or {"reason": error.code}}
    if error.body is not None:
        return {"status": "failed", "error": error.body}
    return {"status": "failed", "error": {"code": error.code, "message": error.message}}


def submit_error(error: Exception, *, key: str) -> AgentJobSubmitError:
    """The error for a submit without a usable answer."""
    verdict = _verdict_on(error)
    if isinstance(error, TransientReply) and error.ambiguous and not verdict.retryable:
        # The job may exist, so giving up would leave it running for nobody: look again.
        verdict = Verdict(ErrorClass.UNKNOWN, None, f"the submit is unclear; {verdict.reason}")
    return AgentJobSubmitError(f"Agent job {key} was not submitted: {scrub(str(error), _WORDS)}", verdict)


def contact_lost(error: Exception, *, name: str) -> AgentJobContactLostError:
    """The error for a poll without a usable answer."""
    text = f"Lost contact to agent job {name}, which may still run; the next attempt attaches to it"
    return AgentJobContactLostError(f"{text}: {scrub(str(error), _WORDS)}", _verdict_on(error))


def _verdict_on(error: Exception) -> Verdict:
    if not isinstance(error, ReplyError):
        return classify(exception=error)
    verdict = classify(status=error.status, headers=error.headers, body=error.body)
    wait = getattr(error, "retry_after", None)
    if verdict.retry_after is None and wait is not None and verdict.retryable:
        return Verdict(verdict.error_class, wait, verdict.reason)
    return verdict

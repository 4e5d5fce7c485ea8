"""How a job ends: from a backend's result or error, and from the faults bound to it, to the final record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.faults import FaultKind, bound
from airflow_relay.local_agent.jobs import JobStatus
from airflow_relay.local_agent.wire import message_item, text_part, usage_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_relay.local_agent.backends import BackendResult
    from airflow_relay.local_agent.faults import Fault
    from airflow_relay.local_agent.jobs import Job


def complete(job: Job, result: BackendResult, *, now: int) -> None:
    """Record a result; a fault bound to the job may turn it into something else."""
    job.usage = usage_object(result.usage.input_tokens, result.usage.output_tokens)
    job.output = [message_item(job.id, [text_part(result.text)], complete=not result.truncated)]
    job.status = JobStatus.INCOMPLETE if result.truncated else JobStatus.COMPLETED
    job.incomplete_reason = "max_output_tokens" if result.truncated else None
    job.completed_at = now
    for kind, change in _CHANGES.items():
        fault = bound(job.faults, kind)
        if fault:
            change(job, fault)


def fail(job: Job, *, code: str, message: str, now: int) -> None:
    job.status = JobStatus.FAILED
    job.error = {"code": code, "message": message}
    job.output = []
    job.completed_at = now


def cancelled(job: Job, *, now: int) -> None:
    job.status = JobStatus.CANCELLED
    job.output = []
    job.completed_at = now


def _failed(job: Job, fault: Fault) -> None:
    fail(job, code=fault.code, message=fault.message, now=job.completed_at or 0)


def _failed_without_error(job: Job, fault: Fault) -> None:
    _failed(job, fault)
    job.error = None
    job.usage = None


def _completed_empty(job: Job, _: Fault) -> None:
    job.output = []
    job.usage = None


def _error_text(job: Job, fault: Fault) -> None:
    text = fault.text or "⚠️ Authentication failed (provider returned HTTP 401)."
    job.output = [message_item(job.id, [text_part(text)])]


def _refusal(job: Job, fault: Fault) -> None:
    part: dict[str, Any] = {"type": "refusal", "refusal": fault.text or "I can't help with that."}
    job.output = [message_item(job.id, [part])]


def _function_call_only(job: Job, _: Fault) -> None:
    suffix = job.id.removeprefix("resp_")
    job.output = [
        {
            "id": f"fc_{suffix}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{suffix[:24]}",
            "name": "ask_person",
            "arguments": '{"question":"Which deployment is meant?"}',
        }
    ]


def _incomplete(job: Job, fault: Fault) -> None:
    job.status = JobStatus.INCOMPLETE
    job.incomplete_reason = fault.text or "max_output_tokens"
    for item in job.output:
        item["status"] = "incomplete"


_CHANGES: dict[FaultKind, Callable[[Job, Fault], None]] = {
    FaultKind.FAILED: _failed,
    FaultKind.FAILED_WITHOUT_ERROR: _failed_without_error,
    FaultKind.FAILED_AS_500: _failed,
    FaultKind.COMPLETED_EMPTY: _completed_empty,
    FaultKind.ERROR_TEXT: _error_text,
    FaultKind.REFUSAL: _refusal,
    FaultKind.FUNCTION_CALL_ONLY: _function_call_only,
    FaultKind.INCOMPLETE: _incomplete,
}

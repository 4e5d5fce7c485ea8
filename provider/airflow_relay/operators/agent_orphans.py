"""The tick's part in agent jobs: stop those that nobody waits for any more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import httpx
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.clock import utcnow
from airflow_relay.hooks.agent import AgentClient, AgentConnectionError, AgentHook
from airflow_relay.ledger import job_sums, jobs
from airflow_relay.ledger.jobs import Job, JobEnd, JobPhase
from airflow_relay.ledger.store import Ledger
from airflow_relay.protocols.base import AgentProtocol, JobRef, ReplyError, Snapshot
from airflow_relay.protocols.errors import InvalidRequest
from airflow_relay.protocols.registry import get_protocol

log: Final = logging.getLogger(__name__)


def cancel_orphans(ledger: Ledger) -> int:
    """Cancel jobs whose run was superseded, whose item is finished, or whose cancel is not confirmed yet.

    A server that does not answer is asked again at the next tick. Returns how many jobs were ended.
    """
    with ledger.write() as tx:
        marked = job_sums.mark_orphans(tx, now=utcnow())
    by_connection: dict[str, list[Job]] = {}
    for job in marked:
        by_connection.setdefault(job.conn_id, []).append(job)
    return sum(_cancel_all(ledger, conn_id, orphans) for conn_id, orphans in by_connection.items())


def _cancel_all(ledger: Ledger, conn_id: str, orphans: list[Job]) -> int:
    ended = 0
    try:
        with AgentHook(conn_id).get_conn() as client:
            for job in orphans:
                ended += _cancel(ledger, client, job)
    except (httpx.HTTPError, OSError, AgentConnectionError, AirflowNotFoundException) as error:
        # The rest of this connection's jobs would meet the same: one time-out a tick is enough.
        log.warning("Agent jobs of connection %r could not be cancelled: %s", conn_id, error)
    return ended


def _cancel(ledger: Ledger, client: AgentClient, job: Job) -> int:
    try:
        snapshot = _stopped(client, job)
    except (ReplyError, InvalidRequest) as error:
        log.warning("Agent job %s could not be cancelled: %s", job.key, error)
        return 0
    if not snapshot.terminal:
        return 0
    usage = snapshot.usage
    end = JobEnd(
        phase=JobPhase.CANCELLED,
        text=f"Agent job of {job.stage}.{job.task_id} stopped: nobody waits for it ({snapshot.raw_status})",
        error_class="cancelled",
        error_reason="its run was superseded, its item is finished, or its task gave it up",
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cost=None if usage is None or usage.cost is None else repr(usage.cost),
    )
    with ledger.write() as tx:
        jobs.ended(tx, job.id, end, now=utcnow())
    return 1


def _stopped(client: AgentClient, job: Job) -> Snapshot:
    assert job.ref is not None, "only submitted jobs are orphans"
    ref, protocol = JobRef.from_json(job.ref), protocol_of(client, job.ref)
    call = protocol.cancel(ref)
    if call is not None:
        snapshot = protocol.parse_cancel(ref, client.send(call))
        if snapshot.terminal:
            return snapshot
    return protocol.parse_poll(ref, client.send(protocol.poll(ref)))


def protocol_of(client: AgentClient, ref: Mapping[str, Any]) -> AgentProtocol:
    """The protocol that a job was submitted with, and its settings."""
    options = {**client.settings.protocol, **(ref.get("options") or {})}
    return get_protocol(str(ref["protocol"]), options)

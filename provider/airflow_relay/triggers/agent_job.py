"""The trigger that watches one agent job. It only reads; what it finds out is for the worker to act on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

import httpx
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.crash import CrashPoint, crash_point
from airflow_relay.hooks.agent import AgentConnectionError
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import jobs
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.protocols.base import AgentProtocol, JobRef, JobRejected, Snapshot, TransientReply
from airflow_relay.protocols.errors import InvalidRequest
from airflow_relay.protocols.registry import get_protocol
from airflow_relay.triggers.agent_client import ReplyTooLargeError, SharedAgentClient, shared_client
from airflow_relay.triggers.pacing import Pace

ENDED_STATES: Final = frozenset({"failed", "success", "skipped", "upstream_failed", "removed"})
"""States in which nobody will ask for the job again. A cleared task will: its next attempt takes it over."""


class WatchEnd(str, Enum):
    """Why the trigger stopped watching. Whatever it is, the worker looks at the job itself."""

    TERMINAL = "terminal"
    DEADLINE = "deadline"
    CONTACT_LOST = "contact_lost"
    TOO_LARGE = "too_large"  # the reply is a finished job's output
    REFUSED = "refused"  # the server refuses to tell: the worker finds out why


class AgentJobTrigger(BaseTrigger):
    """Polls one job until there is something to do about it.

    :param conn_id: Airflow connection; its secrets are looked up, never carried.
    :param ref: the job's reference as JSON, with the protocol's settings under ``"options"``.
    :param deadline: absolute, ISO 8601 with offset.
    :param interval: seconds between polls; the first comes after a full one.
    :param attempt: task instance id of the attempt that owns the job.
    :param key: the job's key in the ledger; ``None`` outside Relay's stages.
    :param patience: seconds for which polls may fail before contact counts as lost.
    :param hint: seconds that the server asked to wait before the first poll.
    :param since: when the task was deferred, ISO 8601 with offset; ``None`` = just now.
    :param cancel_on_kill: whether marking the deferred task cancels the job.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        ref: Mapping[str, Any],
        deadline: str,
        interval: float,
        attempt: str,
        key: str | None = None,
        patience: float = 900.0,
        hint: float | None = None,
        since: str | None = None,
        cancel_on_kill: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.ref = dict(ref)
        self.deadline = deadline
        self.interval = interval
        self.attempt = attempt
        self.key = key
        self.patience = patience
        self.hint = hint
        self.since = since
        self.cancel_on_kill = cancel_on_kill

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; nothing secret is among them."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "conn_id": self.conn_id,
                "ref": self.ref,
                "deadline": self.deadline,
                "interval": self.interval,
                "attempt": self.attempt,
                "key": self.key,
                "patience": self.patience,
                "hint": self.hint,
                "since": self.since,
                "cancel_on_kill": self.cancel_on_kill,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``{"why", "ref", "attempt", "text"}``, never the job's output."""
        async with shared_client(self.conn_id) as client:
            why, text = await self._watch(client)
        event = {"why": why.value, "ref": self.ref, "attempt": self.attempt, "text": text}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]
        crash_point(CrashPoint.TRIGGER_TOLD)

    async def _watch(self, client: SharedAgentClient) -> tuple[WatchEnd, str]:
        until = datetime.fromisoformat(self.deadline)
        patience = timedelta(seconds=self.patience)
        pace = Pace(self.interval, until, patience, random.random)
        protocol: AgentProtocol | None = None
        ref = JobRef.from_json(self.ref)
        since = None if self.since is None else datetime.fromisoformat(self.since)
        wait: float | None = pace.first(utcnow(), self.hint, since)
        text = ""
        while wait is not None:
            await asyncio.sleep(wait)
            if utcnow() >= until:
                return WatchEnd.DEADLINE, f"the deadline {self.deadline} has passed"
            try:
                protocol = protocol or await self._protocol(client)
                snapshot = await _look(client, protocol, ref)
            except ReplyTooLargeError as error:
                return WatchEnd.TOO_LARGE, f"the reply has {error}"
            except (JobRejected, InvalidRequest) as error:
                return WatchEnd.REFUSED, type(error).__name__
            except TransientReply as error:
                text = f"HTTP {error.status}"
                wait = pace.after_failure(utcnow(), error.retry_after)
            except (httpx.HTTPError, OSError, AgentConnectionError) as error:
                text = type(error).__name__
                wait = pace.after_failure(utcnow())
            else:
                if snapshot.terminal:
                    crash_point(CrashPoint.TRIGGER_SEEN)
                    return WatchEnd.TERMINAL, snapshot.phase.value
                ref = snapshot.ref or ref
                wait = pace.after_answer(utcnow(), snapshot.poll_after)
        return WatchEnd.CONTACT_LOST, f"no usable answer for {patience}, last: {text}"

    async def _protocol(self, client: SharedAgentClient) -> AgentProtocol:
        settings = await client.settings()
        options = {**settings.protocol, **(self.ref.get("options") or {})}
        return get_protocol(str(self.ref["protocol"]), options)

    async def on_kill(self) -> None:
        """Cancel the job of a task that a person has ended, and only then.

        Airflow calls this for a cleared task too, perhaps after its next attempt has taken the job over, and
        when triggers move to another triggerer. So nothing is cancelled unless the task is over in Airflow,
        the job is not, and the ledger says that the job is still this attempt's.
        """
        if not self.cancel_on_kill:
            return
        state = await asyncio.to_thread(self._task_state)
        if state not in ENDED_STATES:
            self.log.info("The task is %s, so its agent job goes on.", state)
            return
        async with shared_client(self.conn_id) as client:
            protocol = await self._protocol(client)
            ref = JobRef.from_json(self.ref)
            if (await _look(client, protocol, ref)).terminal:
                return
            call = protocol.cancel(ref)
            if call is None or not await asyncio.to_thread(self._claim):
                return
            snapshot = protocol.parse_cancel(ref, await client.send(call))
            if not snapshot.terminal:
                snapshot = await _look(client, protocol, ref)
            self.log.info("The agent job %s of the ended task is now %s.", ref.id, snapshot.phase.value)
        if snapshot.terminal:
            await asyncio.to_thread(self._record, snapshot)

    def _task_state(self) -> str | None:
        """The task's state in Airflow; a task that is gone with its run counts as removed."""
        ti = self.task_instance
        if ti is None:
            return None
        states = compat.task_states(ti.dag_id, [ti.run_id]).get(ti.run_id, {})
        name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}"
        if name not in states:
            return "removed"
        return None if states[name] is None else str(states[name])

    def _claim(self) -> bool:
        if self.key is None:
            return True
        with get_ledger().write() as tx:
            job = jobs.find_key(tx, self.key)
            return job is not None and jobs.request_cancel(tx, job.id, attempt=self.attempt, now=utcnow())

    def _record(self, snapshot: Snapshot) -> None:
        """Tell the ledger at once; when it is down, the tick finds the claim and does it."""
        if self.key is None:
            return
        end = jobs.JobEnd(
            phase=jobs.JobPhase.CANCELLED,
            text=f"Agent job cancelled: a person ended the task ({snapshot.raw_status})",
            error_class="cancelled",
            error_reason="a person ended the task in Airflow",
            input_tokens=snapshot.usage.input_tokens if snapshot.usage else None,
            output_tokens=snapshot.usage.output_tokens if snapshot.usage else None,
        )
        try:
            with get_ledger().write() as tx:
                job = jobs.find_key(tx, self.key)
                if job is not None:
                    jobs.ended(tx, job.id, end, now=utcnow())
        except LedgerError as error:
            self.log.warning("The cancelled job could not be recorded yet: %s", error)


async def _look(client: SharedAgentClient, protocol: AgentProtocol, ref: JobRef) -> Snapshot:
    reply = await client.send(protocol.poll(ref))
    crash_point(CrashPoint.TRIGGER_POLLED)
    return protocol.parse_poll(ref, reply)

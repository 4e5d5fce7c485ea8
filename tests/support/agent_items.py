"""Items of the pipeline ``agents`` (``tests/integration/dags_folder/agent_jobs.py``) on a real Airflow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from airflow_relay.core.states import ItemState
from airflow_relay.ledger import items, jobs
from airflow_relay.ledger.jobs import Job, JobPhase
from integration.relay_on_airflow import RelayOnAirflow
from support.agent_server import AgentServerProcess

CONNECTION = "agent_of_test"


class AgentItems:
    """Starts items whose one stage asks an agent, and compares the ledger with the agent server."""

    def __init__(self, relay: RelayOnAirflow, server: AgentServerProcess) -> None:
        self.relay = relay
        self.server = server

    def start(self, name: str, **payload: Any) -> str:
        """Let an intake find a new item; returns its key."""
        key = self.relay.new_key(name)
        self.start_all({key: payload})
        return key

    def start_all(self, payloads: Mapping[str, Mapping[str, Any]]) -> None:
        """Let one intake find these items: key → payload."""
        folder = Path(self.relay.airflow.home) / "intake"
        folder.mkdir(exist_ok=True)
        for key, payload in payloads.items():
            (folder / f"{key}.json").write_text(json.dumps({"key": key, "payload": payload}))
        self.relay.api.trigger_dag("agents__ask")

    def jobs_of(self, key: str) -> list[Job]:
        """The item's jobs in the ledger."""
        item = self.relay.item(key)
        assert item is not None
        with self.relay.ledger.read() as tx:
            return jobs.of_item(tx, item.id)

    def on_server(self, job: Job) -> list[dict[str, Any]]:
        """The server's jobs with this key."""
        return [known for known in self.server.jobs() if known["idempotency_key"] == job.key]

    def assert_paid_once(self, key: str) -> None:
        """One job, in the ledger and on the server."""
        (job,) = self.jobs_of(key)
        assert job.phase is JobPhase.SUCCEEDED
        assert len(self.on_server(job)) == 1

    def unfinished(self, keys: Collection[str]) -> list[str]:
        """Those of the items that are not done, or not registered yet."""
        with self.relay.ledger.read() as tx:
            done = {i.key for i in items.listing(tx, limit=10_000) if i.state is ItemState.DONE}
        return [key for key in keys if key not in done]

    def assert_books_agree(self) -> None:
        """The jobs on the server are the attempts in the ledger: none lost, none unknown, none paid twice."""
        with self.relay.ledger.read() as tx:
            known = [j for item in items.listing(tx, limit=10_000) for j in jobs.of_item(tx, item.id)]
        submitted = {job.key: job.ref["id"] for job in known if job.ref is not None}
        on_server = self.server.jobs()
        assert Counter(job["idempotency_key"] for job in on_server) == Counter(list(submitted))
        assert {job["id"] for job in on_server} == set(submitted.values())

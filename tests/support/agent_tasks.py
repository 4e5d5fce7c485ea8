"""Plays Airflow for one agent task: tries, deferrals, clears, kills, with the real operator and trigger."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import uuid
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import TaskDeferred

from airflow_relay.core.completion import StageShape
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import jobs
from airflow_relay.ledger.jobs import Job
from airflow_relay.ledger.store import Ledger
from airflow_relay.operators.agent_job import AgentJobOperator
from airflow_relay.triggers.agent_job import AgentJobTrigger

TASK = "ask"
DRAFT = json.dumps({"draft": "# Pools\n\nA pool has a fixed number of slots [1]."})
MODEL = "extractive/publish"


def one_stage() -> Pipeline:
    return Pipeline("jobs", [Stage("only", status="asked", schedule="0 7 * * *")])


class MemoryStateStore:
    """Airflow's task state store, in a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = json.loads(json.dumps(value))


class AgentTask:
    """One task of one run.

    :param ledger: where the run has an item; without it the run is outside of Relay's stages.
    :param states: what Airflow says of the task, read by kill hooks; shared with the test.
    :param settings: of the operator.
    """

    def __init__(self, ledger: Ledger | None, states: dict[str, Any], **settings: Any) -> None:
        self.ledger = ledger
        self.states = states
        self.settings: dict[str, Any] = {
            "input": DRAFT,
            "model": MODEL,
            "poll_interval": 0.2,
            "instructions": None,
            **settings,
        }
        self.store = MemoryStateStore()
        self.item_id = 0
        self.dag_id, self.run_id = "plain", "manual"
        self.map_index = -1
        if ledger is not None:
            self._grant(ledger)
        self.deferred: TaskDeferred | None = None
        self._first: AgentJobTrigger | None = None
        self.operator: AgentJobOperator
        self.new_try()

    def _grant(self, ledger: Ledger) -> None:
        now, pipeline = datetime.now(timezone.utc), one_stage()
        _, grants = ledger.intake(pipeline, [f"item-{uuid.uuid4().hex[:8]}"], Conditions(), now)
        run = grants[0]
        ledger.ask_guard(
            dag_id=run.dag_id,
            run_id=run.run_id,
            clear_number=0,
            pipeline=pipeline,
            shape=StageShape((TASK,), (TASK,), TASK),
            is_entry_dag=True,
            named_ledger=None,
            now=now,
        )
        self.item_id, self.dag_id, self.run_id = run.item_id, run.dag_id, run.run_id

    def new_try(self, **changed: Any) -> AgentTask:
        """A retry or a clear: a new task instance id, a new operator object, nothing in memory."""
        self.settings.update(changed)
        self.ti = SimpleNamespace(
            id=uuid.uuid4(),
            task_id=TASK,
            map_index=self.map_index,
            dag_id=self.dag_id,
            run_id=self.run_id,
        )
        self.operator = self._operator()
        self.deferred = None
        return self

    def _operator(self) -> AgentJobOperator:
        return AgentJobOperator(task_id=TASK, **self.settings)

    @property
    def context(self) -> dict[str, Any]:
        run = SimpleNamespace(dag_id=self.dag_id, run_id=self.run_id, conf={}, clear_number=0)
        return {"ti": self.ti, "dag_run": run, "task_state_store": self.store}

    def execute(self) -> Any:
        """One worker process: the result, or ``None`` with :attr:`deferred` set.

        Not by ``execute``, which warns of callers other than Airflow's task runner.
        """
        return self._work(lambda: self.operator._begin(self.context))

    def resume(self, event: dict[str, Any] | None) -> Any:
        """The next worker process, after the trigger's event."""
        assert self.deferred is not None
        self.operator = self._operator()
        kwargs = {"event": event}
        method = self.deferred.method_name
        return self._work(lambda: self.operator.resume_execution(method, kwargs, self.context))

    def fail_deferral(self, reason: str) -> Any:
        """Airflow ends the wait itself: the trigger timed out, or broke."""
        self.operator = self._operator()
        return self._work(lambda: self.operator.resume_execution("__fail__", {"error": reason}, self.context))

    def _work(self, body: Any) -> Any:
        self.deferred = None
        try:
            return body()
        except TaskDeferred as deferred:
            self.deferred = deferred
            self._first = self._first or self._made()
            return None

    def trigger(self) -> AgentJobTrigger:
        """The trigger, as the triggerer makes it: from its serialised form, through JSON."""
        return self._made()

    def trigger_of_first(self) -> AgentJobTrigger:
        """The trigger of the first deferral, whatever came after it."""
        assert self._first is not None, "the task was not deferred"
        return self._first

    def _made(self) -> AgentJobTrigger:
        assert self.deferred is not None, "the task was not deferred"
        path, kwargs = self.deferred.trigger.serialize()
        assert path == "airflow_relay.triggers.agent_job.AgentJobTrigger"
        made = AgentJobTrigger(**json.loads(json.dumps(kwargs)))
        made._task_instance = self.ti
        return made

    def watch(self) -> dict[str, Any]:
        """Run the trigger until its event."""
        return asyncio.run(event_of(self.trigger()))

    def run(self) -> Any:
        """Play everything until the task ends: its return value, or its error."""
        value = self.execute()
        while self.deferred is not None:
            value = self.resume(self.watch())
        return value

    def jobs(self) -> list[Job]:
        """The ledger's rows of this item, times aside."""
        assert self.ledger is not None
        with self.ledger.read() as tx:
            return jobs.of_item(tx, self.item_id)

    def job(self) -> Job:
        """The newest of them."""
        return self.jobs()[-1]

    def another(self, **settings: Any) -> AgentTask:
        """A task of another item with the same settings, except these."""
        return AgentTask(self.ledger, self.states, **{**self.settings, **settings})


async def event_of(trigger: AgentJobTrigger) -> dict[str, Any]:
    """The payload of a trigger's one event."""
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("the trigger ended without an event")


def shape(job: Job) -> dict[str, Any]:
    """A row without what differs from run to run."""
    return {k: v for k, v in dataclasses.asdict(job).items() if k in {"generation", "phase", "error_class"}}

"""``compat.py`` against the installed Airflow: each internal name, field and error type that it relies on."""

from __future__ import annotations

import inspect
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction, RetryPolicy
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    ErrorType,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    ErrorResponse,
    SetXCom,
    SkipDownstreamTasks,
    ToSupervisor,
    TriggerDagRun,
)

from airflow_relay import compat

NOW = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)


class Supervisor:
    """Answers a task's messages as told and keeps them."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.messages: list[Any] = []

    def send(self, msg: Any) -> Any:
        self.messages.append(msg)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def listen(monkeypatch: pytest.MonkeyPatch, answer: Any = None) -> Supervisor:
    made = Supervisor(answer)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made


def failure(status: int) -> AirflowRuntimeError:
    return AirflowRuntimeError(
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status, "message": "no"})
    )


def trigger() -> bool:
    return compat.trigger_dag_run(dag_id="d", run_id="r", conf={"item_id": "a"}, note="n", run_after=NOW)


def test_the_message_that_starts_a_run_has_every_field_that_we_set() -> None:
    assert {"dag_id", "run_id", "conf", "logical_date", "run_after", "note"} <= set(
        TriggerDagRun.model_fields
    )
    assert "TriggerDagRun" in str(ToSupervisor), "the supervisor no longer takes this message"


def test_a_run_is_started_without_a_logical_date(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = listen(monkeypatch)
    assert trigger()
    [sent] = supervisor.messages
    assert isinstance(sent, TriggerDagRun)
    assert (sent.dag_id, sent.run_id, sent.conf, sent.note) == ("d", "r", {"item_id": "a"}, "n")
    assert sent.logical_date is None
    assert sent.run_after == NOW


def test_a_run_that_exists_already_is_an_answer_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    listen(monkeypatch, ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS))
    assert not trigger()


@pytest.mark.parametrize(
    ("status", "words"), [(404, "does not exist"), (400, "import errors"), (500, "could not be triggered")]
)
def test_a_dag_that_cannot_be_triggered_is_named(
    monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    listen(monkeypatch, failure(status))
    with pytest.raises(compat.TargetDagError, match=f"'d' .*{words}"):
        trigger()


def test_a_missing_dag_is_not_paused_and_another_error_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    listen(monkeypatch, failure(404))
    assert not compat.is_dag_paused("d")
    listen(monkeypatch, failure(500))
    with pytest.raises(AirflowRuntimeError):
        compat.is_dag_paused("d")


def test_a_missing_run_has_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    listen(monkeypatch, failure(404))
    assert compat.dag_run_state("d", "r") is None


def test_states_of_no_runs_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = listen(monkeypatch)
    assert compat.task_states("d", []) == {}
    assert supervisor.messages == [], "an empty list would return every run of the DAG"


def test_a_task_is_skipped_and_given_links_by_another_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = listen(monkeypatch)
    compat.skip_task("hand_off")
    compat.push_link(
        SimpleNamespace(dag_id="d", run_id="r"), "hand_off", key="_link_ItemLogLink", address="/relay/items/1"
    )
    skip, link = supervisor.messages
    assert isinstance(skip, SkipDownstreamTasks)
    assert skip.tasks == ["hand_off"]
    assert isinstance(link, SetXCom)
    assert (link.dag_id, link.run_id, link.task_id, link.map_index) == ("d", "r", "hand_off", None)
    assert (link.key, link.value) == ("_link_ItemLogLink", "/relay/items/1")
    for message in ("SkipDownstreamTasks", "SetXCom"):
        assert message in str(ToSupervisor), "the supervisor no longer takes this message"


def test_the_look_ups_of_a_task_still_take_what_we_give() -> None:
    instance = task_runner.RuntimeTaskInstance
    assert {"dag_id", "run_ids", "task_ids"} <= set(inspect.signature(instance.get_task_states).parameters)
    assert {"dag_id", "run_id"} <= set(inspect.signature(instance.get_dagrun_state).parameters)
    assert "dag_id" in inspect.signature(instance.get_dag).parameters


def test_a_process_that_runs_no_task_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
    assert not compat.in_task_process()
    listen(monkeypatch)
    assert compat.in_task_process()


class Instance:
    """As much of a running task instance as the question about its retry needs."""

    def __init__(self, *, should_retry: bool, policy: RetryPolicy | None = None) -> None:
        self.task_id, self.map_index, self.try_number = "ask", -1, 1
        self.task = type("Task", (), {"retry_policy": policy})()
        self._ti_context_from_server = type("C", (), {"should_retry": should_retry, "max_tries": 2})()


def test_the_server_says_whether_tries_are_left() -> None:
    assert compat.will_be_retried(Instance(should_retry=True), RuntimeError())
    assert not compat.will_be_retried(Instance(should_retry=False), RuntimeError())


@pytest.mark.parametrize("error", [AirflowFailException(), AirflowSkipException()])
def test_errors_that_end_a_task_are_not_retried(error: Exception) -> None:
    assert not compat.will_be_retried(Instance(should_retry=True), error)


def test_the_context_of_the_server_has_the_fields_that_we_read() -> None:
    from airflow.sdk.api.datamodels._generated import TIRunContext

    assert {"should_retry", "max_tries"} <= set(TIRunContext.model_fields)
    assert "_ti_context_from_server" in task_runner.RuntimeTaskInstance.__private_attributes__ or (
        "_ti_context_from_server" in task_runner.RuntimeTaskInstance.model_fields
    )
    assert {"FAIL", "RETRY", "DEFAULT"} <= {a.name for a in RetryAction}


def test_a_mapped_task_is_named_as_its_states_are() -> None:
    instance = Instance(should_retry=True)
    assert compat.task_key(instance) == "ask"
    instance.map_index = 3
    assert compat.task_key(instance) == "ask_3"

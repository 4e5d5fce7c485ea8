"""Where a process finds its ledger."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_relay.hooks import ledger as hook
from airflow_relay.ledger.errors import LedgerNotReadyError


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task process of a deployment without the connection ``relay_ledger``."""

    def absent(conn_id: str) -> None:
        raise AirflowNotFoundException(conn_id)

    monkeypatch.setattr(hook, "in_task_process", lambda: True)
    monkeypatch.setattr(hook.BaseHook, "get_connection", absent)
    hook.forget_ledger()


@pytest.mark.usefixtures("in_a_task")
@pytest.mark.parametrize("executor", ["CeleryExecutor", "LocalExecutor,KubernetesExecutor"])
def test_report_63_tasks_on_other_machines_need_the_connection_and_are_told_so(
    monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    with pytest.raises(LedgerNotReadyError, match="AIRFLOW_CONN_RELAY_LEDGER"):
        hook.get_ledger()


@pytest.mark.usefixtures("in_a_task")
def test_report_63_on_one_machine_the_ledger_is_a_file_of_its_own_and_never_airflows_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://off.limits/airflow")
    try:
        ledger = hook.get_ledger()
    finally:
        hook.forget_ledger()
    assert ledger.url == f"sqlite:///{tmp_path}/relay/ledger.db"

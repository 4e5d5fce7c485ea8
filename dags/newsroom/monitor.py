"""A light monitor (P1): a plain DAG on its own cron. Work of seconds needs no dispatcher, so it has none."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, task

with DAG(
    "newsroom_monitor",
    schedule="*/30 * * * *",
    start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["newsroom", "monitor"],
    doc_md=__doc__,
):

    @task(execution_timeout=timedelta(minutes=1))
    def agents_answer() -> str:
        """Fail when the agent server does not answer as its connection says."""
        from airflow_relay.hooks.agent import AgentHook

        well, said = AgentHook().test_connection()
        if not well:
            raise RuntimeError(f"The agents of the newsroom do not answer: {said}")
        return said

    agents_answer()

"""The content pipeline's old cron schedules as paused DAGs: unpause one, and its stage is served by it."""

from __future__ import annotations

from include.content.pipeline import content

from airflow_relay import fallback_dags

for dag in fallback_dags(content):
    globals()[dag.dag_id] = dag

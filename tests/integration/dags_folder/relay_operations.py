"""Relay's operations DAGs."""

from __future__ import annotations

from airflow_relay import operations_dags

for dag in operations_dags():
    globals()[dag.dag_id] = dag

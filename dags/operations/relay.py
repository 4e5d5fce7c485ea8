"""The operations DAGs of Relay: one call makes them all."""

from __future__ import annotations

from airflow_relay import operations_dags

for dag in operations_dags():
    globals()[dag.dag_id] = dag

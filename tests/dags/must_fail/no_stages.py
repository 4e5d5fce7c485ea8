"""it has no stages: give at least one Stage with a schedule."""

from airflow_relay import Pipeline

Pipeline("articles", [])

"""The page inside Airflow's UI, and ``GET /relay/health``."""

from __future__ import annotations

from airflow_relay import floor as _floor  # noqa: F401 - refuses an Airflow that is too old

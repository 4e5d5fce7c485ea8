"""The thin Airflow ring: hooks that perform what the core decides."""

from __future__ import annotations

from airflow_relay import floor as _floor  # noqa: F401 - refuses an Airflow that is too old

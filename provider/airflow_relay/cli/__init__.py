"""``airflow relay …``: one module a noun; ``definition`` lists the commands without loading them."""

from __future__ import annotations

from airflow_relay import floor as _floor  # noqa: F401 - refuses an Airflow that is too old

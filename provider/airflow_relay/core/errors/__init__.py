"""The failure classes of Relay and the classifier that every ring shares. Pure, no Airflow, no clock."""

from __future__ import annotations

from airflow_relay.core.errors.taxonomy import (
    HINTED,
    ITEM_LEVEL,
    NOT_RETRYABLE,
    RETRYABLE,
    SYSTEMIC,
    ErrorClass,
    Verdict,
)
from airflow_relay.core.errors.verdicts import classify, classify_line

__all__ = [
    "HINTED",
    "ITEM_LEVEL",
    "NOT_RETRYABLE",
    "RETRYABLE",
    "SYSTEMIC",
    "ErrorClass",
    "Verdict",
    "classify",
    "classify_line",
]

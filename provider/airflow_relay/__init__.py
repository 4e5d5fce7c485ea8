"""Relay: run Airflow pipelines of unpredictable length by completion.

The names below are the public interface of DAG files. They load on first use: importing the package alone
costs nothing, and the pure rules in ``airflow_relay.core`` work without Airflow.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "DISCARD": "core.pipeline",
    "END": "core.pipeline",
    "PERSON": "core.pipeline",
    "AgentJobOperator": "operators.agent_job",
    "DispatchTracks": "operators.dispatch_tracks",
    "NewItem": "ledger.registering",
    "Panel": "core.panel",
    "Pipeline": "core.pipeline",
    "Stage": "core.pipeline",
    "TrackBarrierSensor": "sensors.track_barrier",
    "TrackRun": "operators.dispatch_tracks",
    "Window": "core.pipeline",
    "current_item": "item_context",
    "fallback_dags": "dags.fallback",
    "operations_dags": "dags.operations",
    "panel": "operators.panel",
    "stage_dag": "dags.stage",
    "track": "tracks",
}

__all__ = [
    "DISCARD",
    "END",
    "PERSON",
    "AgentJobOperator",
    "DispatchTracks",
    "NewItem",
    "Panel",
    "Pipeline",
    "Stage",
    "TrackBarrierSensor",
    "TrackRun",
    "Window",
    "__version__",
    "current_item",
    "fallback_dags",
    "operations_dags",
    "panel",
    "stage_dag",
    "track",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'airflow_relay' has no attribute {name!r}")
    return getattr(importlib.import_module(f"airflow_relay.{_HOME[name]}"), name)

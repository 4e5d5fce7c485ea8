"""Entry point by which Airflow discovers this provider (``airflow providers list``)."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the shape of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-relay",
        "name": "Relay",
        "description": "Completion-triggered orchestration of multi-stage pipelines.",
        "cli": ["airflow_relay.cli.definition.get_relay_commands"],
        "connection-types": [
            {
                "connection-type": "relay_ledger",
                "hook-class-name": "airflow_relay.hooks.ledger.LedgerHook",
                "hook-name": "Relay ledger (PostgreSQL)",
            },
            {
                "connection-type": "relay_agent",
                "hook-class-name": "airflow_relay.hooks.agent.AgentHook",
                "hook-name": "Relay agent server",
            },
        ],
    }

"""Entry point by which Airflow discovers this provider (``airflow providers list``)."""

from __future__ import annotations

from typing import Any, Final

_INTEGRATION: Final = "Relay"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the shape of Airflow's ``provider_info.schema.json``.

    It names modules and classes and imports none of them: Airflow reads it in every process. The plugin has
    an entry point of its own: Airflow looks here for plugins only when providers are not found lazily.
    """
    return {
        "package-name": "airflow-provider-relay",
        "name": "Relay",
        "description": "Pipelines of stages of unpredictable length: each starts as the last one ends.",
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["software"]}],
        "operators": _modules(
            "operators.agent_job", "operators.dispatch_tracks", "operators.hand_off", "operators.trigger"
        ),
        "sensors": _modules("sensors.track_barrier"),
        "triggers": _modules("triggers.agent_job"),
        "hooks": _modules("hooks.agent", "hooks.ledger"),
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
        "extra-links": ["airflow_relay.links.ItemLogLink", "airflow_relay.links.TriggeredRunLink"],
        "cli": ["airflow_relay.cli.definition.get_relay_commands"],
        "config": {
            "relay": {
                "description": "Settings of Relay. Rules, limits and holds are Variables.",
                "options": {
                    "results_path": {
                        "description": (
                            "Where stage results and job results above 64 KB go: a path or URL that "
                            "Airflow's ObjectStoragePath can write, such as s3://conn@bucket/relay. Every "
                            "worker and the API server must reach it. Empty: $AIRFLOW_HOME/relay/results."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "s3://aws_default@my-bucket/relay",
                        "default": "",
                    }
                },
            }
        },
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": [f"airflow_relay.{name}" for name in names]}]

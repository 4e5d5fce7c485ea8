"""The plugin as Airflow loads it, in every process. The application itself loads in the API server only."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_relay import links


class RelayPlugin(AirflowPlugin):
    """A page in the navigation, served by an application of its own under ``/relay``."""

    name = "relay"

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override] # Airflow asks for it in the API server
        from airflow_relay.plugin.app import app  # noqa: PLC0415 - FastAPI is heavy

        return [{"app": app, "url_prefix": links.PREFIX, "name": "Relay"}]

    @property
    def external_views(self) -> list[Any]:  # type: ignore[override] # read once the configuration is there
        return [
            {
                "name": "Relay",
                "href": f"{links.base_path()}{links.PREFIX}/",
                "destination": "nav",
                "category": "browse",
                "url_route": "relay",
            }
        ]

"""The plugin as Airflow loads it: as a class, by entry point, in every process that asks for plugins.

(Airflow reads the ``plugins`` of a provider's information only with ``[core] lazy_discover_providers`` off,
and warns when it finds a plugin by both ways.)
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from airflow_relay import links


async def application(scope: Any, receive: Any, send: Any) -> None:
    """The web application, loaded by its first request: other processes than the API server never do."""
    from airflow_relay.plugin.app import app  # noqa: PLC0415 - see above

    await app(scope, receive, send)


class RelayPlugin(AirflowPlugin):
    """A page in the navigation, served by an application of its own under ``/relay``."""

    name = "relay"
    fastapi_apps = [  # noqa: RUF012 - Airflow's own way
        {"app": application, "url_prefix": links.PREFIX, "name": "Relay"}
    ]
    external_views = [  # noqa: RUF012 - see above
        {
            "name": "Relay",
            "href": f"{links.base_path()}{links.PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "relay",
        }
    ]

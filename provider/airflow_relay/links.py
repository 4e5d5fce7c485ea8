"""Links into the page that the plugin adds to Airflow's UI."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

PREFIX: Final = "/relay"
"""Where Airflow's API server mounts the page."""


def base_url() -> str:
    """Address of Airflow's UI without a slash at its end; empty when it is not configured."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def base_path() -> str:
    """The path under which the UI is served, for links within it: empty for the root."""
    return urlsplit(base_url()).path.rstrip("/")


def item_log(item_id: int) -> str:
    """The page of an item: its runs and its activity."""
    return f"{base_url()}{PREFIX}/items/{item_id}"


class TriggeredRunLink(BaseOperatorLink):
    """A button at each task that triggers: to the run that it started in the DAG that the graph shows.

    Airflow's own link for this asks the API server for what the task has just sent there.
    """

    name = "Triggered DAG"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base's signature
        """Empty while no run was started there. Airflow asks when the task has ended, in its process."""
        run = operator.triggered_run
        return "" if run is None else f"{base_url()}/dags/{run.dag_id}/runs/{run.run_id}"


class ItemLogLink(BaseOperatorLink):
    """A button at the hand-off of each run: to the log of the item that the run served."""

    name = "Item log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base's signature
        """Empty for a run without an item."""
        run = operator.served_run
        return "" if run is None else item_log(run.item_id)

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


class ItemLogLink(BaseOperatorLink):
    """A button at the hand-off of each run: to the log of the item that the run served."""

    name = "Item log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base's signature
        """Empty for a run without an item."""
        from airflow_relay.hooks.ledger import get_ledger  # noqa: PLC0415 - DAG parsing needs no ledger

        run = get_ledger().find_run(ti_key.dag_id, ti_key.run_id)
        return "" if run is None else item_log(run.item_id)

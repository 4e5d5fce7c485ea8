"""Who may see and do what. Airflow mounts a plugin's application without asking anybody who they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request

from airflow_relay import links

_SAME_ORIGIN: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True)
class Reader:
    """A user who is logged in and may read DAGs."""

    user: Any

    @property
    def name(self) -> str:
        """For the log of what they do."""
        return str(self.user.get_name())

    def readable(self, dag_ids: Collection[str]) -> frozenset[str]:
        """Those of the DAGs that they may read, also ones that Airflow does not know (any more)."""
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids)) if dag_ids else {}
        by_team: dict[str | None, set[str]] = {}
        for dag_id in dag_ids:
            by_team.setdefault(teams.get(dag_id), set()).add(dag_id)
        return frozenset(
            dag_id
            for team, of_team in by_team.items()
            for dag_id in get_auth_manager().filter_authorized_dag_ids(
                dag_ids=of_team, user=self.user, method="GET", team_name=team
            )
        )

    def may_trigger(self, dag_id: str) -> bool:
        """Whether they may start runs of the DAG: what a redrive leads to."""
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        return bool(
            get_auth_manager().is_authorized_dag(
                method="POST", access_entity=DagAccessEntity.RUN, details=details, user=self.user
            )
        )


def reader(user: GetUserDep) -> Reader:
    """The user of a request.

    :raises HTTPException: 401 without a valid login (by Airflow's own dependency), 403 when they may not read
        any DAGs.
    """
    if not get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(), user=user):
        raise HTTPException(403, "You may not read DAGs.")
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(reader)]


def same_origin(request: Request) -> None:
    """Refuse a form or script of another site that rides on a user's cookie.

    A JSON body cannot be sent by a plain form, and a script of another site would need a permission that this
    application never gives.

    :raises HTTPException: 403 for a request from elsewhere, 415 for a body that is not JSON.
    """
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Send a JSON body with content-type application/json.")
    fetched_from = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if fetched_from is not None:
        is_ours = fetched_from in _SAME_ORIGIN
    else:
        # Browsers say the former over HTTPS and on localhost only. A proxy may have changed the host.
        ours = {request.headers.get("host"), urlsplit(links.base_url()).netloc}
        is_ours = origin is None or urlsplit(origin).netloc in ours - {"", None}
    if not is_ours:
        raise HTTPException(403, "This request comes from another site.")

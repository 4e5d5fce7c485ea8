"""A small client for Airflow's REST API: what a person does in the UI, from a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

Json = dict[str, Any]
PAGE = 100
# Before a request that changes something, Airflow 3.3 writes its access log in the server's event loop. On
# SQLite that can wait for the transaction of another request, which the same loop would have to end: neither
# gets on until SQLite gives up after 5 s, and one of the two answers 500, with nothing done for it.
TRIES_AGAINST_A_LOCKED_DATABASE = 5


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="~") for part in parts)


class AirflowApi:
    """Talks to one API server with a token that it fetches, and renews, itself.

    Every method raises :class:`httpx.HTTPStatusError`, with the server's answer in its text, for a status
    that is an error.

    :param address: ``http://127.0.0.1:8080``.
    :param password: of user ``admin``; None when the server takes everybody for an admin.
    :param transport: how requests travel, for tests of this client; None: over the network.
    """

    def __init__(
        self, address: str, *, password: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._password = password
        # Proxies of the environment are not for this machine's own server.
        self._http = httpx.Client(base_url=address, timeout=30.0, trust_env=False, transport=transport)

    def close(self) -> None:
        self._http.close()

    # Transport

    def _fetch_token(self) -> None:
        if self._password is None:
            response = self._http.get("/auth/token")
        else:
            response = self._http.post("/auth/token", json={"username": "admin", "password": self._password})
        response.raise_for_status()
        self._http.headers["Authorization"] = f"Bearer {response.json()['access_token']}"

    def _send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        if "Authorization" not in self._http.headers:
            self._fetch_token()
        response = self._http.request(method, f"/api/v2/{path}", **kwargs)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._fetch_token()
            response = self._http.request(method, f"/api/v2/{path}", **kwargs)
        return response

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """Send a request to ``/api/v2/<path>`` and return the response, which is not an error."""
        response = self._send(method, path, **kwargs)
        for _ in range(TRIES_AGAINST_A_LOCKED_DATABASE - 1):
            if not _database_gave_up(response):
                break
            response = self._send(method, path, **kwargs)
        if response.is_error:
            raise httpx.HTTPStatusError(
                f"{method} {path}: {response.status_code} {response.text}",
                request=response.request,
                response=response,
            )
        return response

    def get(self, path: str, **params: Any) -> Json:
        answer: Json = self.request("GET", path, params=params).json()
        return answer

    def get_all(self, path: str, key: str, **params: Any) -> list[Json]:
        """All pages of a collection whose list is under ``key``."""
        rows: list[Json] = []
        while True:
            page = self.get(path, limit=PAGE, offset=len(rows), **params)
            rows += page[key]
            if not page[key] or len(rows) >= page["total_entries"]:
                return rows

    # Server

    def health(self) -> Json:
        return self.get("monitor/health")

    def import_errors(self) -> list[Json]:
        return self.get_all("importErrors", "import_errors")

    # DAGs

    def dag_ids(self) -> set[str]:
        return {dag["dag_id"] for dag in self.get_all("dags", "dags")}

    def dag(self, dag_id: str) -> Json:
        return self.get(_path("dags", dag_id))

    def pause(self, dag_id: str) -> None:
        self.request("PATCH", _path("dags", dag_id), json={"is_paused": True})

    def unpause(self, dag_id: str) -> None:
        self.request("PATCH", _path("dags", dag_id), json={"is_paused": False})

    # Runs

    def trigger_dag(
        self, dag_id: str, conf: Json | None = None, run_id: str | None = None, **body: Any
    ) -> str:
        """Trigger a run without a logical date, as the form in the UI does, and return its id."""
        payload: Json = {"logical_date": None, "conf": conf or {}, **body}
        if run_id is not None:
            payload["dag_run_id"] = run_id
        answer: str = self.request("POST", _path("dags", dag_id, "dagRuns"), json=payload).json()[
            "dag_run_id"
        ]
        return answer

    def list_runs(self, dag_id: str = "~", **filters: Any) -> list[Json]:
        """Runs of one DAG, or of all; ``filters`` are the endpoint's query parameters."""
        return self.get_all(_path("dags", dag_id, "dagRuns"), "dag_runs", **filters)

    def dag_run(self, dag_id: str, run_id: str) -> Json:
        return self.get(_path("dags", dag_id, "dagRuns", run_id))

    def get_note(self, dag_id: str, run_id: str) -> str | None:
        note: str | None = self.dag_run(dag_id, run_id)["note"]
        return note

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a run ``success``, ``failed`` or ``queued``."""
        self.request("PATCH", _path("dags", dag_id, "dagRuns", run_id), json={"state": state})

    def clear_run(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> None:
        body = {"dry_run": False, "only_failed": only_failed}
        self.request("POST", _path("dags", dag_id, "dagRuns", run_id, "clear"), json=body)

    def delete_run(self, dag_id: str, run_id: str) -> None:
        self.request("DELETE", _path("dags", dag_id, "dagRuns", run_id))

    # Task instances

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        return self.get_all(_path("dags", dag_id, "dagRuns", run_id, "taskInstances"), "task_instances")

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Json:
        for row in self.task_instances(dag_id, run_id):
            if (row["task_id"], row["map_index"]) == (task_id, map_index):
                return row
        raise LookupError(f"run {run_id} of {dag_id} has no task instance {task_id}[{map_index}]")

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """State by task id; a mapped task's by ``task[0]``, ``task[1]`` and so on."""
        rows = self.task_instances(dag_id, run_id)
        return {
            row["task_id"] if row["map_index"] < 0 else f"{row['task_id']}[{row['map_index']}]": row["state"]
            for row in rows
        }

    def clear(
        self,
        dag_id: str,
        run_id: str,
        task_ids: Sequence[str | tuple[str, int]] | None = None,
        *,
        downstream: bool = True,
        only_failed: bool = False,
    ) -> list[str]:
        """Clear task instances of one run, as the UI's button does; returns the ids of the tasks cleared."""
        body: Json = {
            "dry_run": False,
            "dag_run_id": run_id,
            "only_failed": only_failed,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        if task_ids is not None:
            body["task_ids"] = list(task_ids)
        answer = self.request("POST", _path("dags", dag_id, "clearTaskInstances"), json=body).json()
        return [row["task_id"] for row in answer["task_instances"]]

    def set_task_state(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        state: str,
        *,
        map_index: int | None = None,
        downstream: bool = False,
    ) -> None:
        """Mark a task instance ``success``, ``failed`` or ``skipped``."""
        parts = ["dags", dag_id, "dagRuns", run_id, "taskInstances", task_id]
        if map_index is not None:
            parts.append(str(map_index))
        body = {"new_state": state, "include_downstream": downstream}
        self.request("PATCH", _path(*parts), json=body)

    def xcom(
        self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1
    ) -> Any:
        path = _path("dags", dag_id, "dagRuns", run_id, "taskInstances", task_id, "xcomEntries", key)
        return self.get(path, map_index=map_index, deserialize=True)["value"]

    def task_log(
        self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1, map_index: int = -1
    ) -> str:
        """The task's log as text, one line for each record."""
        path = _path("dags", dag_id, "dagRuns", run_id, "taskInstances", task_id, "logs", str(try_number))
        answer = self.request(
            "GET",
            path,
            params={"map_index": map_index, "full_content": True},
            headers={"Accept": "application/json"},
        ).json()
        records = answer["content"]
        if isinstance(records, str):
            return records
        return "\n".join(_log_line(record) for record in records)

    def extra_links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        answer = self.get(_path("dags", dag_id, "dagRuns", run_id, "taskInstances", task_id, "links"))
        return dict(answer["extra_links"])

    # Variables

    def set_variable(self, key: str, value: str) -> None:
        body = {"key": key, "value": value}
        try:
            self.request("POST", "variables", json=body)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            self.request("PATCH", _path("variables", key), json=body)

    def delete_variable(self, key: str) -> None:
        self.request("DELETE", _path("variables", key))


def _database_gave_up(response: httpx.Response) -> bool:
    return response.status_code == httpx.codes.INTERNAL_SERVER_ERROR and "Database error" in response.text


def _log_line(record: Json | str) -> str:
    if isinstance(record, str):
        return record
    details = {k: v for k, v in record.items() if k not in ("event", "timestamp")}
    return " ".join([str(record.get("event", "")), *(f"{k}={v}" for k, v in details.items())])

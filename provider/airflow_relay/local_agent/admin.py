"""``/admin``: faults and counters for tests; only with ``--allow-faults``, behind its own token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from airflow_relay.local_agent.endpoint import error_response, json_response, read_json, require_token
from airflow_relay.local_agent.faults import Fault, InvalidFaultError
from airflow_relay.local_agent.wire import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from airflow_relay.local_agent.faults import FaultPlan
    from airflow_relay.local_agent.service import JobService


class AdminRoutes:
    """``GET /admin/stats``, ``GET /admin/jobs``, and ``GET``, ``POST``, ``DELETE /admin/faults``."""

    def __init__(self, token: str, service: JobService, plan: FaultPlan) -> None:
        self._token = token
        self._service = service
        self._plan = plan

    def table(self) -> list[Route]:
        return [
            Route("/admin/stats", self._guarded(self._stats), methods=["GET"]),
            Route("/admin/jobs", self._guarded(self._jobs), methods=["GET"]),
            Route("/admin/faults", self._guarded(self._faults), methods=["GET", "POST", "DELETE"]),
        ]

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                require_token(request, self._token)
                return await handler(request)
            except ApiError as error:
                return error_response(error)

        return guarded

    async def _stats(self, _: Request) -> Response:
        """Counters since the start; ``jobs_created`` counts over restarts with a state file."""
        store = self._service.store
        return json_response(
            {
                **self._service.statistics.to_record(),
                "jobs_created": store.jobs_created(),
                "jobs_by_status": store.counts(),
            }
        )

    async def _jobs(self, _: Request) -> Response:
        """Every job known, oldest first, without input and output."""
        return json_response(
            {
                "jobs": [
                    {
                        "id": job.id,
                        "job": job.job,
                        "model": job.model,
                        "status": job.status.value,
                        "created_at": job.created_at,
                        "completed_at": job.completed_at,
                        "idempotency_key": job.idempotency_key,
                        "metadata": job.echo["metadata"],
                        "polls": job.polls,
                    }
                    for job in self._service.store.all()
                ]
            }
        )

    async def _faults(self, request: Request) -> Response:
        """POST adds one fault (a JSON object, see ``faults.Fault``), DELETE switches all off."""
        if request.method == "DELETE":
            self._plan.clear()
        elif request.method == "POST":
            record = await read_json(request)
            try:
                self._plan.add(Fault.from_record(record if isinstance(record, dict) else {}))
            except InvalidFaultError as error:
                raise ApiError(400, str(error), code="invalid_fault") from error
        return json_response({"faults": self._plan.records()})

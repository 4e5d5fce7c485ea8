"""HTTP: routes, authentication, and where faults strike."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

from airflow_relay.local_agent import backends, strikes
from airflow_relay.local_agent.admin import AdminRoutes
from airflow_relay.local_agent.endpoint import error_response, json_response, read_json, require_token
from airflow_relay.local_agent.faults import (
    JOB_KINDS,
    SUBMIT_KINDS,
    TRANSPORT_KINDS,
    Fault,
    FaultKind,
    FaultPlan,
    InvalidFaultError,
    Point,
    bound,
    parse_faults,
)
from airflow_relay.local_agent.service import JobService
from airflow_relay.local_agent.store import JobStore
from airflow_relay.local_agent.wire import ApiError, parse_idempotency_key, parse_submit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from airflow_relay.local_agent.jobs import Job
    from airflow_relay.local_agent.settings import ServerSettings
    from airflow_relay.local_agent.wire import SubmitRequest


def build_app(settings: ServerSettings) -> Starlette:
    """The ASGI application, with its own store and workers.

    :raises backends.BackendUnavailableError: a backend's libraries are missing.
    :raises store.StateFileError: the state file cannot be used.
    """
    loaded = backends.load(settings.backends)
    service = JobService(settings, JobStore(settings.state), loaded)
    plan = FaultPlan(settings.faults)
    routes = ResponsesRoutes(settings, service, plan)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    table = routes.table()
    if settings.admin_token is not None:
        table += AdminRoutes(settings.admin_token, service, plan).table()
    return Starlette(routes=table, lifespan=lifespan)


class ResponsesRoutes:
    """The API's endpoints. Each handler turns ``ApiError`` into its error body."""

    def __init__(self, settings: ServerSettings, service: JobService, plan: FaultPlan) -> None:
        self._settings = settings
        self._service = service
        self._plan = plan
        self._count = service.statistics.requests

    def table(self) -> list[Route]:
        one = "/v1/responses/{id}"
        return [
            Route("/health", self._health, methods=["GET"]),
            Route("/v1/responses", self._guarded(self._post), methods=["POST"]),
            Route(one, self._guarded(self._get), methods=["GET"]),
            Route(one, self._guarded(self._delete), methods=["DELETE"]),
            Route(f"{one}/cancel", self._guarded(self._cancel), methods=["POST"]),
        ]

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                require_token(request, self._settings.token)
                return await handler(request)
            except ApiError as error:
                return error_response(error)

        return guarded

    async def _health(self, _: Request) -> Response:
        return json_response(
            {
                "status": "ok",
                "backends": sorted(self._service.backends),
                "active": self._service.statistics.active_now,
            }
        )

    async def _post(self, request: Request) -> Response:
        self._count["posts"] += 1
        submit = parse_submit(await read_json(request))
        try:
            backend, name = backends.resolve(self._service.backends, submit.model, submit.metadata)
        except backends.UnknownChoiceError as error:
            raise ApiError(400, str(error), param=error.param, code=error.code) from error
        own = self._own_faults(submit)
        key = parse_idempotency_key(request.headers.get("idempotency-key"))
        facts = {**submit.metadata, "job": name, "model": submit.model, "idempotency_key": key or ""}
        before = self._submit_strike(own, Point.SUBMIT, submit, facts)
        if before:
            return await self._strike(before, request)
        if self._plan.peek(FaultKind.IGNORE_IDEMPOTENCY_KEY, facts):
            key = None
        job = self._service.find_by_key(key, submit) if key else None
        if job is not None:
            self._count["replays"] += 1
        else:
            self._check_capacity(facts)
            faults = self._faults_of_new_job(own, submit, facts)
            job = self._service.create(submit, backend, name, key=key, faults=faults)
        after = self._submit_strike(own, Point.SUBMITTED, submit, {**facts, "id": job.id})
        if after:
            return await self._strike(after, request)
        return await self._answer_post(job, submit)

    async def _answer_post(self, job: Job, submit: SubmitRequest) -> Response:
        if submit.background and not bound(job.faults, FaultKind.BACKGROUND_IGNORED):
            return json_response(strikes.view(job))
        finished = await self._service.wait(job.id) or job
        if not submit.store and not submit.background:
            self._service.delete(job.id)
        return json_response(strikes.view(finished))

    async def _get(self, request: Request) -> Response:
        self._count["polls"] += 1
        job = self._job(request)
        fault = self._job_strike(job, Point.POLL)
        if fault:
            return await self._strike(fault, request)
        if self._settings.faults_allowed:
            job.polls += 1
            strikes.flap(job)
            self._service.store.save(job)
        status = 500 if job.error and bound(job.faults, FaultKind.FAILED_AS_500) else 200
        return json_response(strikes.view(job), status=status)

    async def _cancel(self, request: Request) -> Response:
        self._count["cancels"] += 1
        job = self._job(request)
        fault = self._job_strike(job, Point.CANCEL)
        if fault:
            return await self._strike(fault, request)
        refused = bound(job.faults, FaultKind.CANCEL_REJECTED)
        if refused:
            raise ApiError(
                refused.effective_status,
                f"Response with id '{job.id}' cannot be cancelled.",
                param="response_id",
                code="conflict",
            )
        slow = bound(job.faults, FaultKind.SLOW_CANCEL)
        if slow:
            await strikes.hold(slow.effective_seconds)
            job = self._job(request)
        return json_response(strikes.view(self._service.cancel(job)))

    async def _delete(self, request: Request) -> Response:
        self._count["deletes"] += 1
        job = self._job(request)
        self._service.delete(job.id)
        return json_response({"id": job.id, "object": "response", "deleted": True})

    def _job(self, request: Request) -> Job:
        job_id = request.path_params["id"]
        job = self._service.store.get(job_id)
        if job is None or bound(job.faults, FaultKind.LOST):
            raise ApiError(
                404, f"Response with id '{job_id}' not found.", param="response_id", code="not_found"
            )
        return job

    def _own_faults(self, submit: SubmitRequest) -> list[Fault]:
        text = submit.metadata.get("fault")
        if not text or not self._settings.faults_allowed:
            return []
        try:
            return parse_faults(text)
        except InvalidFaultError as error:
            raise ApiError(400, str(error), param="metadata.fault", code="invalid_value") from error

    def _submit_strike(
        self, own: list[Fault], point: Point, submit: SubmitRequest, facts: dict[str, str]
    ) -> Fault | None:
        return self._plan.take_own(own, point, submit.fingerprint) or self._plan.take_transport(point, facts)

    def _job_strike(self, job: Job, point: Point) -> Fault | None:
        fault, job.faults = strikes.take_bound(job.faults, point)
        if fault:
            self._service.store.save(job)
            return fault
        facts = {
            **job.echo["metadata"],
            "id": job.id,
            "job": job.job,
            "model": job.model,
            "idempotency_key": job.idempotency_key or "",
        }
        return self._plan.take_transport(point, facts)

    def _faults_of_new_job(
        self, own: list[Fault], submit: SubmitRequest, facts: dict[str, str]
    ) -> list[Fault]:
        later = {Point.POLL, Point.CANCEL}
        faults = [fault for fault in own if fault.kind not in TRANSPORT_KINDS or fault.point in later]
        faults += self._plan.take_kinds(JOB_KINDS | SUBMIT_KINDS, facts)
        for fault in faults:
            if fault.kind not in TRANSPORT_KINDS:
                self._service.statistics.faults[fault.kind.value] += 1
            if fault.kind is FaultKind.BACKGROUND_REJECTED and submit.background:
                raise ApiError(
                    400,
                    "This model does not support `background=True`.",
                    param="background",
                    code="unsupported_parameter",
                )
        return faults

    def _check_capacity(self, facts: dict[str, str]) -> None:
        fault = self._plan.peek(FaultKind.CAPACITY, facts)
        if fault and self._service.statistics.active_now >= fault.capacity:
            self._service.statistics.faults[fault.kind.value] += 1
            self._service.statistics.rejected_429 += 1
            raise ApiError(
                429,
                f"Rate limit reached: at most {fault.capacity} concurrent jobs.",
                error_type="requests",
                code="rate_limit_exceeded",
                headers={"Retry-After": fault.retry_after or "1"},
            )

    async def _strike(self, fault: Fault, request: Request) -> Response:
        self._service.statistics.faults[fault.kind.value] += 1
        if fault.kind is FaultKind.HTTP_STATUS and fault.effective_status == 429:
            self._service.statistics.rejected_429 += 1
        return await strikes.transport_reply(fault, request)

from __future__ import annotations

import httpx
import pytest

from airflow_api import TRIES_AGAINST_A_LOCKED_DATABASE, AirflowApi

LOCKED = httpx.Response(500, json={"detail": {"reason": "Database error", "message": "Serious error"}})
BROKEN = httpx.Response(500, json={"detail": "An error occurred while trying to deserialize Dag"})


def answering(*answers: httpx.Response) -> tuple[AirflowApi, list[httpx.Request]]:
    """A client whose requests, but for the token's, are answered in turn; the last answer stays."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            return httpx.Response(200, json={"access_token": "t"})
        asked.append(request)
        return answers[min(len(asked), len(answers)) - 1]

    return AirflowApi("http://airflow", transport=httpx.MockTransport(handle)), asked


def test_a_request_that_met_a_locked_database_is_sent_again():
    api, asked = answering(LOCKED, LOCKED, httpx.Response(200, json={}))
    api.unpause("a")
    assert [(request.method, request.url.path) for request in asked] == [("PATCH", "/api/v2/dags/a")] * 3


def test_a_database_that_stays_locked_is_an_error():
    api, asked = answering(LOCKED)
    with pytest.raises(httpx.HTTPStatusError, match=r"PATCH dags/a: 500 .*Database error"):
        api.unpause("a")
    assert len(asked) == TRIES_AGAINST_A_LOCKED_DATABASE


def test_another_error_is_raised_at_once():
    api, asked = answering(BROKEN)
    with pytest.raises(httpx.HTTPStatusError, match="deserialize"):
        api.unpause("a")
    assert len(asked) == 1

"""What a stage's task is told to do about an error, and what the ledger is told of it."""

from __future__ import annotations

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_relay.core.errors import ErrorClass, classify
from airflow_relay.policies.stage_retry import StageRetryPolicy, verdict_on


def answer_of_airflow(status: int, detail: str) -> AirflowRuntimeError:
    return AirflowRuntimeError(
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status, "detail": detail})
    )


@pytest.mark.parametrize(
    ("status", "detail"),
    [(401, "Invalid token"), (404, "Task instance not found"), (409, "conflict"), (500, "Server error")],
)
def test_an_error_of_airflows_own_api_is_unknown_and_tried_again(status: int, detail: str) -> None:
    """It is no word of an agent."""
    error = answer_of_airflow(status, detail)
    verdict = verdict_on(error)
    assert verdict.error_class is ErrorClass.UNKNOWN
    assert verdict.reason.startswith("Airflow's API server: ")
    assert StageRetryPolicy().evaluate(error, 1, 3).action is not RetryAction.FAIL


@pytest.mark.parametrize("status", [401, 404, 500])
def test_the_same_words_of_an_agent_are_classified(status: int) -> None:
    assert classify(exception=answer_of_airflow(status, "Not found")).error_class is not ErrorClass.UNKNOWN


def test_an_error_in_the_author_s_own_code_keeps_its_name():
    assert verdict_on(KeyError("collect")).reason == "KeyError: collect"

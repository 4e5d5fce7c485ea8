"""What a stage's work has returned, made fit for the ledger: hand-off and reconciliation share it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_relay.core.completion import Completion, outcome_of
from airflow_relay.core.errors.scrub import scrub
from airflow_relay.core.errors.taxonomy import ErrorClass
from airflow_relay.core.item import Run
from airflow_relay.core.lifecycle import UnknownOutcomeError, route
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.states import RunResult, RunState
from airflow_relay.ledger.errors import BadItemError
from airflow_relay.ledger.results import Stored
from airflow_relay.ledger.store import Ledger


def with_result(
    ledger: Ledger,
    run: Run,
    *,
    key: str,
    pipeline: Pipeline,
    completion: Completion,
    returned: Any,
    keeps_result: bool,
) -> tuple[Completion, Stored | None]:
    """The completion of a successful run with its outcome, and its result to keep.

    What cannot be kept, or routed, is the stage's failure. Were it the failure of whoever records it, the run
    would stay open and hold its slots.

    :param returned: the return value of the stage's work.
    :param keeps_result: the work has a return value.
    """
    if pipeline.has_stage(run.stage) and pipeline.stage(run.stage).is_router:
        outcome = outcome_of(returned, pipeline.stage(run.stage).outcome_field)
        completion = replace(completion, outcome=outcome)
    stored = None
    try:
        if keeps_result:
            name = f"{run.stage}.{run.visit}.{run.epoch}"
            stored = ledger.prepare(returned, run.pipeline, key, name)
        # A closed run is here because a person has marked it a success; the outcome is asked for by a letter.
        if run.state is RunState.OPEN and pipeline.has_stage(run.stage):
            route(pipeline, run.stage, completion.outcome)
    except (BadItemError, UnknownOutcomeError) as error:
        completion = Completion(
            RunResult.FAILED,
            outcome=completion.outcome,
            error_class=ErrorClass.INVALID_REQUEST.value,
            error_reason=scrub(str(error)),
        )
    return completion, stored

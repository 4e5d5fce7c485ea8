"""One dead letter as a question in Airflow's Required Actions, and the answer carried out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

from airflow_relay import compat
from airflow_relay.clock import utcnow
from airflow_relay.core.pipeline import Pipeline, PipelineError
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger import dead_letters, declarations
from airflow_relay.ledger.dead_letters import DeadLetter
from airflow_relay.ledger.errors import RefusedActionError
from airflow_relay.ledger.store import Ledger
from airflow_relay.operations import actions
from airflow_relay.operations.actions import ActionResult
from airflow_relay.operators.trigger import plain_text, send_grants

log: Final = logging.getLogger(__name__)

REDRIVE: Final = "Redrive"
SKIP_STAGE: Final = "Skip stage"
DISCARD: Final = "Discard"
OPTIONS: Final = (REDRIVE, SKIP_STAGE, DISCARD)

LOOK_AGAIN: Final = timedelta(minutes=30)
"""So often an open question looks whether its letter was decided elsewhere, and closes itself then."""


class LetterQuestion(HITLOperator):
    """Ask a person about one dead letter, and do what was chosen.

    The letter's id is in the run's conf (``letter``). The answer is carried out in the same task, so that an
    answer that cannot be carried out (a router asks for its outcome) leaves the question open.
    """

    def __init__(self, *, look_again: timedelta = LOOK_AGAIN, **kwargs: Any) -> None:
        super().__init__(
            subject="A dead letter",
            options=list(OPTIONS),
            response_timeout=look_again,
            params={
                "stage": Param(None, type=["null", "string"], title="Redrive: at another stage"),
                "fresh": Param(
                    False, type="boolean", title="Redrive: ask agents anew instead of kept results"
                ),
                "outcome": Param(None, type=["null", "string"], title="Skip stage: a router's outcome"),
            },
            **kwargs,
        )

    def execute(self, context: Context) -> Any:
        """Put the question, or say that the letter has been decided about."""
        ledger = get_ledger()
        letter = _letter_of(ledger, context)
        if letter is None or not letter.is_open:
            return {"text": decided_elsewhere(letter)}
        self.subject = f"Dead letter: {letter.pipeline} / {letter.key} at {letter.stage}"
        self.body = describe(ledger, letter)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Carry the answer out once; a letter that was decided elsewhere closes the question.

        :raises TaskAwaitingInput: nobody has answered yet, or the answer cannot be carried out.
        """
        ledger = get_ledger()
        letter = _letter_of(ledger, context)
        if letter is None or not letter.is_open:
            return {"text": decided_elsewhere(letter)}
        if event.get("error_type") == "timeout":
            raise self._ask_on()
        answer = super().execute_complete(context, event)
        user = answer.get("responded_by_user") or {}
        by = str(user.get("name") or user.get("id") or "a person in Airflow")
        try:
            done = carry_out(ledger, letter, answer["chosen_options"][0], answer["params_input"], by=by)
        except (PipelineError, RefusedActionError) as error:
            log.warning("This cannot be done, the question stays open: %s", error)
            self._reopen(context)
            raise self._ask_on() from error
        log.info("%s", done.text)
        return {"text": done.text, "sent": send_on(ledger)}

    def _ask_on(self) -> TaskAwaitingInput:
        return TaskAwaitingInput(method_name="execute_complete", timeout=self.response_timeout)

    def _reopen(self, context: Context) -> None:
        """Airflow keeps one answer a question: putting it again takes the useless answer away."""
        upsert_hitl_detail(
            ti_id=context["ti"].id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            params=self.serialized_params,
        )


def _letter_of(ledger: Ledger, context: Context) -> DeadLetter | None:
    asked = (context["dag_run"].conf or {}).get("letter")
    if not isinstance(asked, int):
        return None
    with ledger.read() as tx:
        return dead_letters.by_id(tx, asked)


def decided_elsewhere(letter: DeadLetter | None) -> str:
    """Why there is nothing to ask."""
    if letter is None:
        return "The ledger has no such letter (any more): nothing to ask."
    return f"'{letter.key}' was {letter.resolution} by {letter.resolved_by}: nothing to ask."


def carry_out(
    ledger: Ledger, letter: DeadLetter, choice: str, form: Mapping[str, Any], *, by: str
) -> ActionResult:
    """Do what was chosen for a letter's item.

    :raises PipelineError: a stage or outcome in the form is not known; the text names those that are.
    """
    key, pipeline, now = letter.key, letter.pipeline, utcnow()
    if choice == REDRIVE:
        stage, fresh = form.get("stage") or None, bool(form.get("fresh"))
        return actions.redrive(ledger, key, pipeline=pipeline, stage=stage, fresh=fresh, by=by, now=now)
    if choice == SKIP_STAGE:
        outcome = form.get("outcome") or None
        return actions.skip_stage(
            ledger, key, pipeline=pipeline, outcome=outcome, stage=letter.stage, by=by, now=now
        )
    return actions.discard(ledger, key, pipeline=pipeline, by=by, now=now)


def send_on(ledger: Ledger) -> int:
    """Dispatch and send at once; what cannot be sent is in the outbox. Returns the number of grants sent."""
    now = utcnow()
    grants = actions.dispatch(ledger, read_conditions(ledger, now), now=now)
    try:
        return len(send_grants(ledger, grants))
    except compat.TargetDagError as error:
        log.warning("%s", error)
        return 0


def describe(ledger: Ledger, letter: DeadLetter) -> str:
    """The letter as Markdown: what happened, in order, and what each answer does."""
    with ledger.read() as tx:
        pipeline = declarations.load_all(tx).get(letter.pipeline)
    since = f"{letter.at:%Y-%m-%d %H:%M} UTC"
    lines = [
        f"**{plain_text(letter.key)}** of **{letter.pipeline}** waits at **{letter.stage}** since {since}.",
        "",
        plain_text(letter.reason),
        "",
        "What was tried:",
        "",
        *(f"- {entry['at'][:19]} {plain_text(entry['text'])}" for entry in _told(letter)),
    ]
    logged = [entry["text"] for entry in letter.trail if entry["what"] == dead_letters.LOG_ENTRY]
    if logged:
        lines += ["", "Last log lines:", "", *(f"    {line}" for line in logged[-1].splitlines())]
    meaning = "*Redrive* runs it again with a fresh budget. *Discard* ends the item."
    return "\n".join([*lines, "", f"{meaning} {_skipping(pipeline, letter)}"])


def _told(letter: DeadLetter) -> list[Mapping[str, Any]]:
    return [entry for entry in letter.trail if entry["what"] != dead_letters.LOG_ENTRY]


def _skipping(pipeline: Pipeline | None, letter: DeadLetter) -> str:
    if pipeline is None or not pipeline.has_stage(letter.stage):
        return f"The stage {letter.stage} no longer exists: redrive it at another one."
    stage = pipeline.stage(letter.stage)
    if stage.is_router:
        return f"*Skip stage* needs an outcome: {', '.join(stage.routes)}."
    return "*Skip stage* goes on behind it."

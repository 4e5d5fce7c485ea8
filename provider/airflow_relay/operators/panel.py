"""A panel of critics as a stage's body: one agent job for each critic, and a task that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from airflow.sdk import task
from airflow.sdk.definitions.xcom_arg import XComArg

from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass, Verdict
from airflow_relay.core.errors.taxonomy import RETRYABLE
from airflow_relay.core.panel import Panel, ScoreError
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.item_context import ItemView, current_item
from airflow_relay.ledger import jobs
from airflow_relay.ledger.jobs import Job
from airflow_relay.operators.agent_job import AgentJobOperator
from airflow_relay.operators.agent_job_errors import AgentJobError
from airflow_relay.operators.agent_job_results import full_result

CRITICS_TASK_ID: Final = "critics"
VERDICT_TASK_ID: Final = "verdict"


class CriticFailedError(AgentJobError):
    """A critic's reply holds no score on the scale. Its result is dropped, so the next try asks it afresh."""


class PanelIncompleteError(AgentJobError):
    """Critics are missing, so the round decides nothing. What the others have said is kept."""


class PanelCritic(AgentJobOperator):
    """One critic: an agent job whose reply must hold a score.

    Returns what ``AgentJobOperator`` returns, with ``"critic"`` and ``"score"``.

    :param critic: its name, one of the panel's.
    :param declared: the panel.
    :param score_field: where the reply holds the score, a dotted path.
    :raises CriticFailedError: the reply holds no score, or one that is off the scale.
    """

    ui_color = "#e8e4f0"

    def __init__(
        self, *, critic: str, declared: Panel, score_field: str = "data.score", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.critic = critic
        self.declared = declared
        self.score_field = score_field

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """As an agent job, with the reply's score checked."""
        return self._scored(super().execute(context))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]
    ) -> Any:
        """The same after the deferral."""
        return self._scored(super().resume_execution(next_method, next_kwargs, context))

    def _scored(self, reply: dict[str, Any]) -> dict[str, Any]:
        try:
            score = self.declared.score(_at(full_result(reply), self.score_field))
        except ScoreError as error:
            # The job has succeeded and its result is kept: without this every later try would get it again.
            with get_ledger().write() as tx:
                jobs.drop_kept(tx, current_item().item.id, now=utcnow(), key=reply["job"]["key"])
            text = f"Critic {self.critic}: {error}"
            raise CriticFailedError(text, Verdict(ErrorClass.UNKNOWN, None, text)) from error
        return {**reply, "critic": self.critic, "score": score}


def panel(
    declared: Panel,
    *,
    input: Any,  # noqa: A002 - the word of AgentJobOperator
    each: Callable[[str], Mapping[str, Any]] = lambda name: {"metadata": {"critic": name}},
    score_field: str = "data.score",
    findings_field: str = "data.findings",
    **job: Any,
) -> XComArg:
    """Build a panel inside a stage's function; return what it returns as the stage's result.

    Two tasks: ``critics``, an agent job mapped over the panel's critics, and ``verdict``, which decides when
    all of them have ended. A result: ``{"outcome", "average", "threshold", "round", "rounds", "reason",
    "scores": {critic: score}, "feedback": [finding, with its "critic"]}``; the stage is a router of
    :class:`~airflow_relay.core.panel.PanelOutcome`, its round is the item's visit.

    A critic that failed, or whose score cannot be read, is no zero: the verdict names it and fails, and so
    does the stage. Finished critics are kept, so its next run asks the missing ones alone. Give the stage
    more time than a critic's ``timeout``, so that the verdict can still say who is missing.

    :param input: what each critic is asked, as of ``AgentJobOperator``.
    :param each: critic → further arguments of its job (``metadata``, ``instructions``, ``model``, …); the
        same names for each critic.
    :param score_field: where a reply holds the score, a dotted path.
    :param findings_field: where a reply holds the list of its findings, for the next draft.
    :param job: arguments of every critic's ``AgentJobOperator`` (``model``, ``timeout``, ``retries``, …).
    """
    critics = PanelCritic.partial(
        task_id=CRITICS_TASK_ID,
        input=input,
        declared=declared,
        score_field=score_field,
        map_index_template="{{ task.critic }}",
        **job,
    ).expand_kwargs([{"critic": name, **each(name)} for name in declared.critics])

    @task(task_id=VERDICT_TASK_ID, trigger_rule="all_done", retries=0)
    def verdict(replies: Any) -> dict[str, Any]:
        found = {reply["critic"]: reply for reply in replies or () if reply}
        return decide(declared, found, current_item(), findings_field=findings_field)

    result: XComArg = verdict(critics.output)
    return result


def decide(
    declared: Panel, found: Mapping[str, Mapping[str, Any]], item: ItemView, *, findings_field: str
) -> dict[str, Any]:
    """The stage's result from the replies of all critics.

    :param found: critic → what its task returned.
    :raises PanelIncompleteError: names the critics that are missing, and why.
    """
    scores = {name: float(found[name]["score"]) for name in declared.critics if name in found}
    if declared.missing(scores):
        raise incomplete(declared, scores, item)
    judged = declared.judge(scores, round_number=item.visit)
    return {
        "outcome": judged.outcome.value,
        "average": round(judged.average, 3),
        "threshold": declared.threshold,
        "round": item.visit,
        "rounds": declared.rounds,
        "reason": judged.reason,
        "scores": scores,
        "feedback": [
            {**finding, "critic": name} if isinstance(finding, Mapping) else finding
            for name in declared.critics
            for finding in _at(full_result(found[name]), findings_field) or ()
        ],
    }


def incomplete(declared: Panel, scores: Mapping[str, float], item: ItemView) -> PanelIncompleteError:
    """The error of a round with missing critics. Its class says whether another run may complete it."""
    with get_ledger().read() as tx:
        asked = [
            job
            for job in jobs.of_item(tx, item.item.id)
            if (job.stage, job.visit, job.task_id) == (item.stage, item.visit, CRITICS_TASK_ID)
        ]
    ends = {name: _last(asked, declared.critics.index(name)) for name in declared.missing(scores)}
    missing = ", ".join(f"{name} ({_why(job)})" for name, job in ends.items())
    finished = ", ".join(f"{name} {score:g}" for name, score in scores.items()) or "none"
    text = (
        f"{len(scores)} of {len(declared.critics)} critics have finished in round {item.visit}: {finished}. "
        f"Missing: {missing}. What has finished is kept; the next run asks the missing critics alone."
    )
    classes = [job.error_class for job in ends.values() if job is not None]
    return PanelIncompleteError(text, Verdict(_class_of([*classes, item.run.error_class]), None, text))


def _last(asked: Sequence[Job], map_index: int) -> Job | None:
    return next((job for job in reversed(asked) if job.map_index == map_index), None)


def _why(job: Job | None) -> str:
    if job is None:
        return "never asked"
    if job.dropped_at is not None:
        return "its score could not be read"
    return job.error_class or job.phase.value


def _class_of(classes: Iterable[str | None]) -> ErrorClass:
    """One that cannot be mended decides: with such a critic no further run completes the round."""
    known = [ErrorClass(name) for name in classes if name]
    lasting = [name for name in known if name not in RETRYABLE]
    return next(iter([*lasting, *known]), ErrorClass.UNKNOWN)


def _at(value: Any, path: str) -> Any:
    """The value at a dotted path; ``None`` where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value

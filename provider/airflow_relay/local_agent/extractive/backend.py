"""The extractive backend: job names, required inputs, and one call for each job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.backends import (
    EXTRACTIVE,
    Backend,
    BackendResult,
    InvalidInputError,
    Usage,
    count_tokens,
    cut_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CRITIC_NAMES = ("structure", "voice", "ethics", "shareability", "legal_accuracy", "research_rigor")


@dataclass(frozen=True)
class JobSpec:
    module: str
    """Inside this package; loaded at the first job, since the libraries are heavy."""
    function: str
    required: tuple[str, ...]
    """Input fields that must be there."""
    first_argument: str | None = None

    def load(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        from importlib import import_module  # noqa: PLC0415 - only here

        function = getattr(
            import_module(f"airflow_relay.local_agent.extractive.{self.module}"), self.function
        )
        return partial(function, self.first_argument) if self.first_argument else function


SUMMARIZE = "summarize"
"""The job of a request that names none: its input is any text."""

_RESEARCH = JobSpec("research", "research", ("question", "sources"))
_WRITE = JobSpec("write", "write", ("question", "passages"))
_SELF_REVIEW = JobSpec("self_review", "self_review", ("draft",))
_POLISH = JobSpec("polish", "polish", ("draft",))

JOBS: dict[str, JobSpec] = {
    "research": _RESEARCH,
    "write": _WRITE,
    "self_review": _SELF_REVIEW,
    "dedup_check": JobSpec("dedup_check", "dedup_check", ("draft", "others")),
    "art_direction": JobSpec("art_direction", "art_direction", ("draft",)),
    "publish": _POLISH,
    "improve": _POLISH,
    # the newsroom's names for the same work
    "draft": _WRITE,
    "qa": _SELF_REVIEW,
    "ship": _POLISH,
    **{f"critique/{name}": JobSpec("critics", "critique", ("draft",), name) for name in CRITIC_NAMES},
}


class ExtractiveBackend(Backend):
    """Deterministic: the same input gives the same output, byte for byte."""

    name = EXTRACTIVE
    default_job = SUMMARIZE

    @property
    def jobs(self) -> tuple[str, ...]:
        return (SUMMARIZE, *JOBS)

    def prepare(self, job: str, text: str) -> dict[str, Any] | str:
        if job == SUMMARIZE:
            return text
        try:
            payload = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"the input of the job '{job}' must be a JSON object in a string"
            ) from error
        if not isinstance(payload, dict):
            raise InvalidInputError(f"the input of the job '{job}' must be a JSON object")
        missing = [name for name in JOBS[job].required if not payload.get(name) and payload.get(name) != []]
        if missing:
            raise InvalidInputError(
                f"the input of the job '{job}' lacks {', '.join(repr(name) for name in missing)}"
            )
        return payload

    def run(self, job: str, payload: dict[str, Any] | str, options: Mapping[str, Any]) -> BackendResult:
        data = None
        if isinstance(payload, dict):
            data = JOBS[job].load()(payload)
            text = json.dumps(data, ensure_ascii=False)
        else:
            from airflow_relay.local_agent.extractive.summarize import summarize  # noqa: PLC0415 - heavy

            text = summarize(payload)
        limit: int | None = options.get("max_output_tokens")
        used = count_tokens(text)
        truncated = False
        if limit is not None and used > limit:
            text, used, truncated = cut_tokens(text, limit), limit, True
        asked = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        usage = Usage(count_tokens(asked), used)
        return BackendResult(text, None if truncated else data, usage, truncated=truncated)

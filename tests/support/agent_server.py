"""The embedded agent server as a subprocess, for tests that need it over the wire.

    with AgentServerProcess() as server:
        server.set_fault("http_status", point="poll", status=429, retry_after="1", times=3)
        ... talk to server.url ...
        assert server.stats()["jobs_created"] == 1

As a fixture: ``from tests.support.agent_server import agent_server  # noqa: F401``.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from processes import Reaper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

HEALTH_ATTEMPTS = 150
HEALTH_PAUSE = 0.2


class AgentServerProcess:
    """Starts on a free port with faults allowed; a restart keeps the port, so that clients find it again.

    It ends with the process that started it, also when that is killed.

    :param state: SQLite file, for tests that restart the server; default: jobs live in memory.
    :param token: bearer token of the API; default: none is asked for.
    :param latency: seconds as a number, or ``"low:high"``.
    :param extra_args: more of the command line.
    """

    def __init__(
        self,
        *,
        state: Path | str | None = None,
        token: str | None = None,
        latency: float | str | None = None,
        workers: int = 2,
        backends: tuple[str, ...] = ("extractive",),
        extra_args: tuple[str, ...] = (),
    ) -> None:
        self.token = token
        self.admin_token = secrets.token_hex(8)
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self._reaper: Reaper | None = None
        # For appending: reading moves the position that the server's writes share.
        self._log = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 - closed by stop()
        self._args = ["--workers", str(workers), "--allow-faults", *extra_args]
        for backend in backends:
            self._args += ["--backend", backend]
        if state is not None:
            self._args += ["--state", str(state)]
        if latency is not None:
            self._args += ["--latency", str(latency)]
        if token is not None:
            self._args += ["--token-env", "RELAY_TEST_AGENT_TOKEN"]

    @property
    def url(self) -> str:
        """Without a path, for example ``http://127.0.0.1:40123``."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Returns when the server answers. Raises RuntimeError with its log if it does not come up."""
        self._reaper = self._reaper or Reaper()
        env = {
            **os.environ,
            **self._reaper.environment,
            "RELAY_AGENT_ADMIN_TOKEN": self.admin_token,
        }
        if self.token is not None:
            env["RELAY_TEST_AGENT_TOKEN"] = self.token
        self.process = subprocess.Popen(
            [sys.executable, "-m", "airflow_relay.local_agent", "--port", str(self.port), *self._args],
            env=env,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # ends with the process, so this cannot hang
        if "listening on" not in line:
            self.process.wait(30)
            raise RuntimeError(f"the agent server did not start: {self.log()}")
        self.port = int(line.rsplit(":", 1)[1])
        self._wait_for_health()
        return self

    def stop(self) -> None:
        """End it politely, then firmly; the log is gone afterwards."""
        self._end(signal.SIGTERM)
        if self._reaper is not None:
            self._reaper.close()
        self._log.close()

    def kill(self) -> None:
        """SIGKILL, as the machine's out-of-memory killer would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill and start again on the same port; with ``state`` it knows its jobs, its faults are gone."""
        self.kill()
        self.start()

    def log(self) -> str:
        """What it has logged so far: one JSON object a line."""
        self._log.seek(0)
        return self._log.read()

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().splitlines() if line.strip()]

    def stats(self) -> Any:
        """posts, jobs_created, replays, polls, cancels, deletes, rejected_429, faults, active, max_active,
        by_job, jobs_by_status."""
        return self._admin("GET", "stats")

    def jobs(self) -> Any:
        """Every job the server knows: id, job, status, idempotency_key, metadata, polls …"""
        return self._admin("GET", "jobs")["jobs"]

    def set_fault(self, kind: str, **settings: Any) -> None:
        """Switch a fault on; see ``airflow_relay.local_agent.faults.Fault`` for the settings."""
        self._admin("POST", "faults", {"kind": kind, **settings})

    def clear_faults(self) -> None:
        self._admin("DELETE", "faults")

    def faults(self) -> Any:
        return self._admin("GET", "faults")["faults"]

    def client(self, **settings: Any) -> httpx.Client:
        """An HTTP client for the API, with the token."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30, **settings)

    def submit(self, job: str, payload: dict[str, Any], **fields: Any) -> Any:
        """POST a background job of the extractive backend; returns the response object."""
        key = fields.pop("idempotency_key", None)
        body = {
            "model": f"extractive/{job}",
            "input": json.dumps(payload),
            "background": True,
            "store": True,
            **fields,
        }
        with self.client() as client:
            reply = client.post("/v1/responses", json=body, headers={"Idempotency-Key": key} if key else {})
        reply.raise_for_status()
        return reply.json()

    def wait_for(self, job_id: str, *, attempts: int = 300, pause: float = 0.1) -> Any:
        """Poll until the job is no longer queued or in progress."""
        with self.client() as client:
            for _ in range(attempts):
                reply = client.get(f"/v1/responses/{job_id}").raise_for_status().json()
                if reply["status"] not in {"queued", "in_progress"}:
                    return reply
                time.sleep(pause)
        raise AssertionError(f"job {job_id} did not end within {attempts} polls")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _admin(self, method: str, what: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.admin_token}"}
        with httpx.Client(trust_env=False, timeout=30) as client:
            reply = client.request(method, f"{self.url}/admin/{what}", headers=headers, json=body)
        if reply.is_error:
            raise RuntimeError(f"{method} /admin/{what}: {reply.status_code} {reply.text}")
        return reply.json()

    def _wait_for_health(self) -> None:
        assert self.process is not None
        with httpx.Client(trust_env=False, timeout=5) as client:
            for _ in range(HEALTH_ATTEMPTS):
                try:
                    if client.get(f"{self.url}/health").is_success:
                        return
                except httpx.TransportError:
                    if self.process.poll() is not None:
                        break
                time.sleep(HEALTH_PAUSE)
        self.kill()
        raise RuntimeError(f"the agent server did not answer {self.url}/health: {self.log()}")

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, how)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(15)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def agent_server() -> Iterator[AgentServerProcess]:
    """A running server with faults allowed, its own for each test."""
    with AgentServerProcess() as server:
        yield server


@pytest.fixture(scope="module")
def shared_agent_server() -> Iterator[AgentServerProcess]:
    """One running server for a module whose tests set faults only by ``where`` or by request."""
    with AgentServerProcess() as server:
        yield server

"""Child processes in groups of their own that never outlive this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

import reaper
from polling import wait_until


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


class ManagedProcess:
    """One component: a command in its own process group, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], *, env: Mapping[str, str], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._command = list(command)
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; raises :class:`RuntimeError` before the first start."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already (pid {self.pid})")
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, number: signal.Signals = signal.SIGKILL, *, whole_tree: bool = True) -> None:
        """Signal the process, with ``whole_tree`` everything below it too (as when its host is lost), and
        wait for its end.

        Airflow puts each task process in a group of its own, so the tree is walked rather than the group.
        """
        if not self.is_running:
            return
        root = psutil.Process(self.pid)
        tree = [*root.children(recursive=True), root] if whole_tree else [root]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        wait_until(
            lambda: not self.is_running and not any(_is_alive(process) for process in tree),
            what=f"{self.name} to end after {number.name}",
            interval=0.02,
        )

    def log_tail(self, lines: int = 40) -> str:
        if not self.log_file.exists():
            return "(no log)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


class Reaper:
    """A process that ends every process with its marker when :meth:`close` is called or this process is gone.

    Whoever is started with :attr:`environment` carries the marker, and so do its own children, whatever group
    they move to. The reaper holds the reading end of a pipe: it closes with this process, also by SIGKILL.
    """

    def __init__(self) -> None:
        self.marker = uuid.uuid4().hex
        # setproctitle would overwrite the environment that the reaper looks at.
        self.environment = {reaper.MARKER: self.marker, "SPT_NOENV": "1"}
        self._process = subprocess.Popen(
            [sys.executable, reaper.__file__, self.marker],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def tell(self, **message: str) -> None:
        """Send it one of the messages of ``reaper.py``."""
        if self._process.stdin is None:
            raise RuntimeError("the reaper has no pipe")
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Let it do its work now, and wait for its end. Idempotent.

        :raises RuntimeError: it failed.
        """
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise RuntimeError(f"the reaper failed with exit code {self._process.returncode}")


class ProcessFamily:
    """All processes started for one purpose; :meth:`stop` ends them, and so does the death of this process.

    Its :class:`Reaper` also drops the databases that it was told of.
    """

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._members: dict[str, ManagedProcess] = {}
        self._reaper = Reaper()

    @property
    def marker(self) -> str:
        """What ``reaper.end_family`` finds the members by."""
        return self._reaper.marker

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str]) -> ManagedProcess:
        """Start ``command``; its output goes to ``<log folder>/<name>.log``."""
        marked = {**env, **self._reaper.environment}
        member = ManagedProcess(name, command, env=marked, log_file=self._log_folder / f"{name}.log")
        member.start()
        self._members[name] = member
        return member

    def drop_at_end(self, server_url: str, url: str) -> None:
        """Drop the PostgreSQL database ``url`` when the family has ended."""
        self._reaper.tell(server_url=server_url, drop=url)

    def detach(self) -> None:
        """Leave everything running when this process ends; ``reaper.end_family(marker)`` ends it later."""
        self._reaper.tell(detach="yes")
        self._reaper.close()

    def stop(self) -> None:
        """Ask all members to end, kill what is left after a grace period, drop the databases. Idempotent."""
        self._reaper.close()
        wait_until(
            lambda: not any(member.is_running for member in self._members.values()),
            what="all processes to end",
            interval=0.02,
        )


def environment_without_airflow() -> dict[str, str]:
    """The environment of this process without Airflow's settings, which would win over an airflow.cfg."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
    kept["NO_PROXY"] = kept["no_proxy"] = "127.0.0.1,localhost"
    return kept

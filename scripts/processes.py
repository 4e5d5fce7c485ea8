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


class ProcessFamily:
    """All processes started for one purpose; :meth:`stop` ends them, and so does the death of this process.

    Every member carries a marker in its environment, which its own children inherit whatever group they move
    to. A reaper process holds the reading end of a pipe. When the pipe closes, because :meth:`stop` was
    called or because this process is gone (also by SIGKILL), it ends every process with the marker and drops
    the databases it was told of.
    """

    def __init__(self, log_folder: Path) -> None:
        self.marker = uuid.uuid4().hex
        self._log_folder = log_folder
        self._members: dict[str, ManagedProcess] = {}
        self._reaper = subprocess.Popen(
            [sys.executable, reaper.__file__, self.marker],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def _tell_reaper(self, **message: str) -> None:
        if self._reaper.stdin is None:
            raise RuntimeError("the reaper has no pipe")
        self._reaper.stdin.write(json.dumps(message) + "\n")
        self._reaper.stdin.flush()

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str]) -> ManagedProcess:
        """Start ``command``; its output goes to ``<log folder>/<name>.log``."""
        # setproctitle would overwrite the environment that the reaper looks at.
        marked = {**env, reaper.MARKER: self.marker, "SPT_NOENV": "1"}
        member = ManagedProcess(name, command, env=marked, log_file=self._log_folder / f"{name}.log")
        member.start()
        self._members[name] = member
        return member

    def drop_at_end(self, server_url: str, url: str) -> None:
        """Drop the PostgreSQL database ``url`` when the family has ended."""
        self._tell_reaper(server_url=server_url, drop=url)

    def detach(self) -> None:
        """Leave everything running when this process ends; ``reaper.end_family(marker)`` ends it later."""
        self._tell_reaper(detach="yes")
        self._close()

    def stop(self) -> None:
        """Ask all members to end, kill what is left after a grace period, drop the databases. Idempotent."""
        if self._reaper.poll() is None:
            self._close()
        wait_until(
            lambda: not any(member.is_running for member in self._members.values()),
            what="all processes to end",
            interval=0.02,
        )

    def _close(self) -> None:
        if self._reaper.stdin is not None and not self._reaper.stdin.closed:
            self._reaper.stdin.close()
        if self._reaper.wait() != 0:
            raise RuntimeError(
                f"the reaper of {self._log_folder} failed with exit code {self._reaper.returncode}"
            )


def environment_without_airflow() -> dict[str, str]:
    """The environment of this process without Airflow's settings, which would win over an airflow.cfg."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
    kept["NO_PROXY"] = kept["no_proxy"] = "127.0.0.1,localhost"
    return kept

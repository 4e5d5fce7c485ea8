"""A real Airflow of one's own, for the demo, the integration tests and the benchmarks."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from airflow_api import AirflowApi, Json
from airflow_config import RECOMMENDED, Config, base_config, merged, write_home
from databases import ROOT, postgres_metadata, sqlite_metadata
from polling import wait_until
from processes import ManagedProcess, ProcessFamily, environment_without_airflow, free_port

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

# Component → its key in the answer of /api/v2/monitor/health.
COMPONENTS = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "dag-processor": "dag_processor",
    "triggerer": "triggerer",
}
RUN_END_STATES = frozenset({"success", "failed"})
START_TIMEOUT = 180.0


class AirflowInstance:
    """Starts the four components of Airflow as separate processes and stops them without fail.

    The components are started one by one rather than by ``airflow standalone``, so that each can be killed
    and started again. Everything is under ``home``; the API listens on 127.0.0.1 only. Use it as a context
    manager::

        with AirflowInstance(tmp / "airflow", [dags]) as airflow:
            run_id = airflow.api.trigger_dag("content__research")
            airflow.wait_for_run("content__research", run_id)

    :param home: AIRFLOW_HOME, a folder that does not exist yet or is empty.
    :param dags_folders: each becomes a DAG bundle; parsed and run with the checkout on ``PYTHONPATH``.
    :param postgres_server: SQLAlchemy URL of a PostgreSQL server (any database on it); the instance creates
        its own metadata database there and drops it at the end. None: SQLite, good for a few runs at a time.
    :param recommended: the configuration that the README recommends, with the preload; False: Airflow's stock
        values.
    :param config: further settings by section and option; they win.
    :param connections: connection id → URI, given to all components as ``AIRFLOW_CONN_…``.
    :param extra_env: further environment variables of all components.
    :param password: of user ``admin``; None lets everybody on this machine in as an admin.
    :param dags_paused: whether a new DAG waits to be unpaused, Airflow's default.
    """

    def __init__(
        self,
        home: Path,
        dags_folders: Sequence[Path],
        *,
        postgres_server: str | None = None,
        executor: str = "LocalExecutor",
        parallelism: int = 4,
        recommended: bool = True,
        config: Mapping[str, Mapping[str, str]] | None = None,
        connections: Mapping[str, str] | None = None,
        extra_env: Mapping[str, str] | None = None,
        plugins_folder: Path | None = None,
        password: str | None = None,
        dags_paused: bool = False,
    ) -> None:
        self.home = home.resolve()
        self.log_folder = self.home / "logs" / "components"
        self.password = password
        self.metadata_url = ""
        self.start_seconds: float | None = None
        self._dags_folders = [folder.resolve() for folder in dags_folders]
        self._plugins_folder = (plugins_folder or self.home / "plugins").resolve()
        self._postgres_server = postgres_server
        self._executor = executor
        self._parallelism = parallelism
        self._recommended = recommended
        self._config = merged({"core": {"dags_are_paused_at_creation": str(dags_paused)}}, config or {})
        self._ports = {name: free_port() for name in ("api", "worker_logs", "trigger_logs")}
        self.address = f"http://127.0.0.1:{self._ports['api']}"
        self.api = AirflowApi(self.address, password=password)
        self.env = self._environment(connections or {}, extra_env or {})
        self._family: ProcessFamily | None = None
        self._components: dict[str, ManagedProcess] = {}
        self._killed: set[str] = set()

    def _environment(self, connections: Mapping[str, str], extra_env: Mapping[str, str]) -> dict[str, str]:
        return {
            **environment_without_airflow(),
            "AIRFLOW_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **{f"AIRFLOW_CONN_{name.upper()}": uri for name, uri in connections.items()},
            **extra_env,
        }

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the database, start all components and wait until each reports that it is healthy."""
        started = time.monotonic()
        self._prepare()
        try:
            for name in COMPONENTS:
                self._start_component(name)
            self.wait(self._all_healthy, what="all components to be healthy", timeout=START_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - started

    def _prepare(self) -> None:
        if (self.home / "airflow.cfg").exists():
            raise FileExistsError(f"{self.home} belongs to another Airflow; give a new folder or remove it")
        self._plugins_folder.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        self._family = ProcessFamily(self.log_folder)
        if self._postgres_server:
            self.metadata_url = postgres_metadata(self._postgres_server)
            self._family.drop_at_end(self._postgres_server, self.metadata_url)
        else:
            self.metadata_url = sqlite_metadata(self.home / "airflow.db")
        base = base_config(
            home=self.home,
            dags_folders=self._dags_folders,
            plugins_folder=self._plugins_folder,
            metadata_url=self.metadata_url,
            ports=self._ports,
            executor=self._executor,
            parallelism=self._parallelism,
            login=self.password is not None,
        )
        recommended: Config = RECOMMENDED if self._recommended else {}
        write_home(
            self.home,
            merged(base, recommended, self._config),
            password=self.password,
            preload=self._recommended,
        )

    def stop(self) -> None:
        """End every process, grandchildren included, and drop the metadata database. Idempotent."""
        self.api.close()
        if self._family is not None:
            self._family.stop()
            self._family = None

    @property
    def marker(self) -> str:
        """What ``reaper.end_family`` finds this Airflow's processes by."""
        return self._running_family().marker

    def detach(self) -> None:
        """Leave it running when this process ends, and :meth:`stop` do nothing any more."""
        self._running_family().detach()
        self._family = None

    def _running_family(self) -> ProcessFamily:
        if self._family is None:
            raise RuntimeError("this Airflow is not running; call start() first")
        return self._family

    # Components

    def add_process(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> ManagedProcess:
        """Start another process that ends with this Airflow (a Celery worker, an agent server)."""
        return self._running_family().start(name, command, env={**self.env, **(env or {})})

    def _start_component(self, name: str) -> None:
        self._components[name] = self.add_process(name, [sys.executable, "-m", "airflow", name])

    def component(self, name: str) -> ManagedProcess:
        return self._components[name]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, whole_tree: bool = True) -> None:
        """Kill one component; by default with all that it has started, as when its host is lost.

        With ``whole_tree=False`` only the component's own process gets the signal: a scheduler's workers and
        tasks are then orphans, as when the kernel kills that one process.
        """
        self._killed.add(name)
        self._components[name].kill(number, whole_tree=whole_tree)

    def restart(self, name: str) -> None:
        """Kill the component if it runs, start it again, and wait until it has reported a new heartbeat."""
        self.kill(name)
        since = datetime.now(timezone.utc)
        self._components[name].start()
        self._killed.discard(name)
        self.wait(
            lambda: self._is_healthy(name, since=since), what=f"{name} to be healthy", timeout=START_TIMEOUT
        )

    def _health(self) -> Json:
        try:
            return dict(
                httpx.get(f"{self.address}/api/v2/monitor/health", trust_env=False, timeout=10.0).json()
            )
        except (httpx.TransportError, ValueError):  # not up yet
            return {}

    def _is_healthy(self, name: str, *, since: datetime | None = None) -> bool:
        key = COMPONENTS[name]
        report = self._health().get(key) or {}
        beat = report.get(f"latest_{key}_heartbeat")
        if since is not None and beat is not None and datetime.fromisoformat(beat) < since:
            return False
        return report.get("status") == "healthy"

    def _all_healthy(self) -> bool:
        return all(self._is_healthy(name) for name in COMPONENTS)

    def _require_components(self) -> None:
        for name, component in self._components.items():
            if name not in self._killed and not component.is_running:
                raise RuntimeError(
                    f"{name} has ended by itself with exit code {component.exit_code};"
                    f" the end of {component.log_file}:\n{component.log_tail()}"
                )

    def log_tails(self, lines: int = 40) -> str:
        """The last lines of every component's log."""
        return "\n".join(
            f"--- {name} ({component.log_file}) exit code {component.exit_code}\n{component.log_tail(lines)}"
            for name, component in self._components.items()
        )

    # Command line

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``airflow <arguments>`` against this Airflow and return what it printed.

        :raises RuntimeError: when ``check`` is set and the exit code is not 0; the text has the output.
        """
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(
                f"airflow {shlex.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    # Waiting

    def wait(
        self, check: Callable[[], T | None], *, what: str, timeout: float = 60.0, interval: float = 0.1
    ) -> T:
        """Poll ``check`` until it is true and return its value.

        :raises WaitTimeoutError: at the deadline, with the last lines of every component's log.
        :raises RuntimeError: at once, when a component has ended that nobody killed through :meth:`kill`.
        """

        def alive_and_checked() -> T | None:
            self._require_components()
            return check()

        return wait_until(
            alive_and_checked, what=what, timeout=timeout, interval=interval, explain=self.log_tails
        )

    def wait_for_dags(self, *dag_ids: str, timeout: float = 60.0) -> None:
        """Wait until the DAGs are known.

        :raises RuntimeError: at once, when a file cannot be imported; the text has its traceback.
        """

        def missing_none() -> bool:
            errors = self.api.import_errors()
            if errors:
                raise RuntimeError("\n".join(f"{e['filename']}: {e['stack_trace']}" for e in errors))
            return set(dag_ids) <= self.api.dag_ids()

        self.wait(missing_none, what=f"DAGs {', '.join(dag_ids)} to be parsed", timeout=timeout)

    def wait_for_run(
        self, dag_id: str, run_id: str, *, states: frozenset[str] = RUN_END_STATES, timeout: float = 120.0
    ) -> Json:
        """Wait until the run exists and is in one of ``states``; returns the run."""

        def reached() -> Json | None:
            run = next((r for r in self.api.list_runs(dag_id) if r["dag_run_id"] == run_id), None)
            return run if run and run["state"] in states else None

        return self.wait(
            reached, what=f"run {run_id} of {dag_id} to be {' or '.join(sorted(states))}", timeout=timeout
        )

    def wait_for_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        states: frozenset[str],
        map_index: int = -1,
        timeout: float = 60.0,
    ) -> Json:
        """Wait until the task instance is in one of ``states``; returns the task instance."""

        def reached() -> Any:
            row = self.api.task_instance(dag_id, run_id, task_id, map_index)
            return row if row["state"] in states else None

        what = f"{task_id} in run {run_id} of {dag_id} to be {' or '.join(sorted(states))}"
        return dict(self.wait(reached, what=what, timeout=timeout))

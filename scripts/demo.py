"""Runs the content pipeline on a real Airflow: one intake, then completions alone.

``make demo`` calls it. Everything is under ``.demo`` in the checkout; nothing but this process's own Airflow
and agent server is started, and both are stopped at the end, also after Ctrl-C, SIGTERM or the death of this
process.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

import reaper
from airflow_instance import AirflowInstance
from databases import ROOT
from demo_ledger import ItemProgress, read_progress
from demo_report import report
from polling import wait_until
from processes import free_port

PIPELINE = "content"
INTAKE_DAG = "content__research"
FALLBACK_PREFIX = "relay__fallback__"
INTERRUPTED = 130
TERMINATED = 143


@dataclass(frozen=True)
class Places:
    """The demo's folder."""

    root: Path

    @property
    def airflow_home(self) -> Path:
        return self.root / "airflow"

    @property
    def ledger_file(self) -> Path:
        return self.airflow_home / "relay" / "ledger.db"

    @property
    def published(self) -> Path:
        return self.root / "published"

    @property
    def notice(self) -> Path:
        """Who uses the folder: the starter's pid and the marker of its processes."""
        return self.root / "running.json"


class DemoFailedError(Exception):
    """The demo could not do what it promises; the text is for the person at the terminal."""


def say(text: str) -> None:
    print(text, flush=True)


# The folder


def stop_earlier(places: Places) -> bool:
    """End what an earlier ``KEEP=1`` left running; whether there was something.

    :raises DemoFailedError: another demo is at work in the same folder right now.
    """
    if not places.notice.exists():
        return False
    notice = json.loads(places.notice.read_text())
    if not notice["kept"] and psutil.pid_exists(notice["pid"]) and reaper.family(notice["marker"]):
        raise DemoFailedError(f"another demo is running here (pid {notice['pid']}); wait for it, or stop it")
    ended = reaper.end_family(notice["marker"])
    places.notice.unlink()
    return ended > 0


def write_notice(places: Places, marker: str, *, kept: bool) -> None:
    places.notice.write_text(json.dumps({"pid": os.getpid(), "marker": marker, "kept": kept}))


# The pieces


def build_airflow(places: Places, agent_port: int) -> AirflowInstance:
    """An Airflow with the content pipeline and the operations DAGs; new DAGs are paused, as everywhere."""
    return AirflowInstance(
        places.airflow_home,
        [ROOT / "dags" / "content", ROOT / "dags" / "operations"],
        plugins_folder=ROOT / "plugins",
        connections={"relay_agent": f"http://127.0.0.1:{agent_port}"},
        extra_env={"RELAY_CONTENT_OUTPUT": str(places.published)},
        password=secrets.token_urlsafe(9),
        dags_paused=True,
    )


def start_agent_server(airflow: AirflowInstance, port: int) -> None:
    command = [sys.executable, "-m", "airflow_relay.local_agent", "--host", "127.0.0.1", "--port", str(port)]
    server = airflow.add_process("agent-server", command)

    def answers() -> bool:
        if not server.is_running:
            raise DemoFailedError(f"the agent server ended by itself:\n{server.log_tail()}")
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    wait_until(answers, what="the agent server to answer", explain=server.log_tail)


def unpause_all(airflow: AirflowInstance) -> None:
    """Unpause the pipeline's and Relay's own DAGs; the fallback schedules are meant to stay paused."""
    from include.content.pipeline import content

    stages = {f"{PIPELINE}__{stage.name}" for stage in content.stages}
    airflow.wait_for_dags(*stages, "relay__dispatch")
    for dag_id in sorted(airflow.api.dag_ids()):
        if not dag_id.startswith(FALLBACK_PREFIX):
            airflow.api.unpause(dag_id)


# The run


def describe(item: ItemProgress) -> str:
    return f"{item.key:<28} {item.status:<14} {item.stage} {item.state.value}"


def follow(airflow: AirflowInstance, places: Places, run_id: str, *, timeout: float) -> list[ItemProgress]:
    """Print each change until all items are terminal, and return them.

    :raises DemoFailedError: the intake failed, or it took longer than ``timeout`` seconds.
    """
    started = time.monotonic()
    shown: dict[str, str] = {}

    def all_terminal() -> list[ItemProgress] | None:
        items = read_progress(places.ledger_file, PIPELINE)
        for item in items:
            if shown.get(item.key) != describe(item):
                shown[item.key] = describe(item)
                say(f"[{time.monotonic() - started:5.0f} s] {shown[item.key]}")
        if not items and airflow.api.dag_run(INTAKE_DAG, run_id)["state"] == "failed":
            raise DemoFailedError(f"the intake failed; see run {run_id} in {airflow.home / 'logs'}")
        return items if items and all(item.is_terminal for item in items) else None

    return airflow.wait(all_terminal, what="every item to be terminal", timeout=timeout, interval=0.5)


def run_pipeline(airflow: AirflowInstance, places: Places, *, timeout: float) -> bool:
    """One intake from start to the closing report; whether all went well."""
    from include.content.page_checks import check_site
    from include.content.pipeline import content

    say(f"one intake: a run of {INTAKE_DAG}; every later stage starts when the one before completes")
    run_id = airflow.api.trigger_dag(INTAKE_DAG)
    items = follow(airflow, places, run_id, timeout=timeout)
    problems = check_site(places.published)
    stages = [stage.name for stage in content.stages]
    say(report(items, stages=stages, output=places.published, problems=problems))
    counts = Counter(item.state.value for item in items)
    say("items: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    return not problems and "dead" not in counts


def demo(places: Places, *, keep: bool, timeout: float) -> bool:
    stop_earlier(places)
    shutil.rmtree(places.root, ignore_errors=True)
    places.root.mkdir(parents=True)
    say(f"starting Airflow and the agent server in {places.root}")
    agent_port = free_port()
    airflow = build_airflow(places, agent_port)
    with airflow:
        marker = airflow.marker
        write_notice(places, marker, kept=False)
        start_agent_server(airflow, agent_port)
        unpause_all(airflow)
        say(f"Airflow is ready after {airflow.start_seconds:.0f} s: {airflow.address}")
        succeeded = run_pipeline(airflow, places, timeout=timeout)
        if keep:
            airflow.detach()
            write_notice(places, marker, kept=True)
            say(f"\nleft running: {airflow.address}  user admin  password {airflow.password}")
            say(f"the published pages: {airflow.address}/published/")
            airflow_command = shlex.quote(str(Path(sys.executable).parent / "airflow"))
            home = shlex.quote(str(places.airflow_home))
            say(f"the ledger: AIRFLOW_HOME={home} {airflow_command} relay items")
            say("make demo-stop ends it")
        else:
            say("stopping Airflow and the agent server")
    if not keep:
        places.notice.unlink()
    return succeeded


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the content pipeline on a real Airflow of its own.")
    parser.add_argument("--keep", action="store_true", help="leave Airflow and the agent server running")
    parser.add_argument("--stop", action="store_true", help="end what --keep has left running")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="default: .demo in the checkout")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for all items (default: 1200)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    places = Places(options.folder.resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    # A shell without job control starts its background commands with SIGINT ignored, and so does some CI.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if options.stop:
            say("stopped" if stop_earlier(places) else "nothing is running")
            return 0
        return 0 if demo(places, keep=options.keep, timeout=options.timeout) else 1
    except KeyboardInterrupt:
        say("\ninterrupted; Airflow and the agent server are stopped")
        return INTERRUPTED
    except (DemoFailedError, RuntimeError, AssertionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the example deployment is imported as `include.…`
    sys.exit(main())

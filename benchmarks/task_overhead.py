"""What Relay costs a task process: the first guarded ledger read, and a DAG file with 50 stages, not one.

Both are measured as a task meets them: in a process forked from one with the preload (``local_settings``),
and for comparison in a fresh process that has only what Airflow's task runner imports itself.

    python benchmarks/task_overhead.py            # SQLite, and PostgreSQL with RELAY_TEST_POSTGRES_URL
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

ROUNDS = 15
READ_TARGET_MS = 150.0
STAGES_TARGET_MS = 20.0

CHILD = """
import json, os, sys, time
import airflow.sdk, airflow.sdk.execution_time.task_runner, airflow.providers.standard.operators.python
from types import SimpleNamespace
airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS = object()  # as in a task
begun = time.perf_counter()
from airflow_relay.core.completion import StageShape
from airflow_relay.core.pipeline import END, Pipeline, Stage
from airflow_relay.operators.guard import Guard
imported = time.perf_counter()
line = Pipeline("line", [Stage("first", to=END, schedule="0 7 * * *")])
run = SimpleNamespace(dag_id="line__first", run_id=sys.argv[1], clear_number=0, conf={})
Guard(line, "first", StageShape(("work",), ("work",))).check({"dag_run": run})
print(json.dumps([(imported - begun) * 1000, (time.perf_counter() - imported) * 1000]))
"""


def main() -> int:
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["AIRFLOW_HOME"] = folder
        ledgers = {"SQLite": f"sqlite:///{folder}/ledger.db"}
        server = os.environ.get("RELAY_TEST_POSTGRES_URL")
        if server:
            from databases import create_database

            ledgers["PostgreSQL"] = create_database(server, prefix="relay_overhead")
        try:
            for name, url in ledgers.items():
                measure_guard(name, url)
            measure_stages()
        finally:
            if server:
                from databases import drop_database

                drop_database(server, ledgers["PostgreSQL"])
    return 0


def measure_guard(name: str, url: str) -> None:
    os.environ["AIRFLOW_CONN_RELAY_LEDGER"] = json.dumps(connection_of(url))
    run_id = granted_run(url)
    fresh = [fresh_process(run_id) for _ in range(5)]
    imports, reads = (statistics.median(values) for values in zip(*fresh, strict=True))
    forked = statistics.median(forked_process(run_id) for _ in range(ROUNDS))
    verdict = "met" if forked <= READ_TARGET_MS else "missed"
    print(
        f"{name}: first guarded read {forked:.0f} ms in a forked task process "
        f"(target {READ_TARGET_MS:.0f}: {verdict});"
    )
    print(f"  without the preload {reads:.0f} ms, and {imports:.0f} ms of imports")


def connection_of(url: str) -> dict[str, Any]:
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    return {
        "conn_type": "sqlite" if parsed.get_backend_name() == "sqlite" else "postgres",
        "host": parsed.host,
        "login": parsed.username,
        "password": parsed.password,
        "port": parsed.port,
        "schema": parsed.database,
    }


def granted_run(url: str) -> str:
    """A run of a line of one stage, started, so that the guard only reads."""
    from airflow_relay.clock import utcnow
    from airflow_relay.core.completion import StageShape
    from airflow_relay.core.pipeline import END, Pipeline, Stage
    from airflow_relay.core.snapshot import Conditions
    from airflow_relay.hooks.objects import results_folder
    from airflow_relay.ledger.engine import dispose_engines
    from airflow_relay.ledger.store import Ledger

    line = Pipeline("line", [Stage("first", to=END, schedule="0 7 * * *")])
    ledger = Ledger(url, results_folder())
    ledger.init()
    _, [run] = ledger.intake(line, ["a"], Conditions(), utcnow())
    ledger.ask_guard(
        dag_id=run.dag_id,
        run_id=run.run_id,
        clear_number=0,
        pipeline=line,
        shape=StageShape(("work",), ("work",)),
        is_entry_dag=True,
        named_ledger=None,
        now=utcnow(),
    )
    dispose_engines()
    return run.run_id


def fresh_process(run_id: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, run_id], capture_output=True, text=True, check=True, env=os.environ
    )
    imports, read = json.loads(done.stdout.strip().splitlines()[-1])
    return imports, read


def forked_process(run_id: str) -> float:
    """Milliseconds of the guard in a child of this process, which has everything imported."""
    from types import SimpleNamespace

    from airflow.sdk.execution_time import task_runner

    from airflow_relay import local_settings
    from airflow_relay.core.completion import StageShape
    from airflow_relay.core.pipeline import END, Pipeline, Stage
    from airflow_relay.operators.guard import Guard

    # As in a task, which asks its supervisor; here the connection is in the environment, so nobody is asked.
    task_runner.SUPERVISOR_COMMS = object()
    local_settings.preload([*local_settings.MODULES, *local_settings.own_modules()])
    line = Pipeline("line", [Stage("first", to=END, schedule="0 7 * * *")])
    run = SimpleNamespace(dag_id="line__first", run_id=run_id, clear_number=0, conf={})
    guard = Guard(line, "first", StageShape(("work",), ("work",)))
    return in_child(lambda: guard.check({"dag_run": run}))


def in_child(work: Any) -> float:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        begun = time.perf_counter()
        work()
        os.write(writer, str((time.perf_counter() - begun) * 1000).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    figure = float(os.read(reader, 64))
    os.close(reader)
    return figure


def source_of(stages: int) -> str:
    names = [f"s{i}" for i in range(stages)]
    declared = ",".join(
        f"Stage({n!r}, to={names[i + 1]!r}" + (', schedule="0 7 * * *")' if i == 0 else ")")
        if i + 1 < stages
        else f"Stage({n!r}, to=END" + (', schedule="0 7 * * *")' if i == 0 else ")")
        for i, n in enumerate(names)
    )
    bodies = "\n".join(
        f"@stage_dag(many, {n!r}{', intake=list' if i == 0 else ''})\ndef f{i}():\n    return work()\n"
        for i, n in enumerate(names)
    )
    return (
        "from airflow.sdk import task\nfrom airflow_relay import END, Pipeline, Stage, stage_dag\n"
        f"many = Pipeline('many', [{declared}])\n@task\ndef work():\n    return 1\n{bodies}"
    )


def measure_stages() -> None:
    os.environ["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = "many__s0"
    os.environ["_AIRFLOW_PARSING_CONTEXT_TASK_ID"] = "work"
    times: dict[int, list[float]] = {1: [], 50: []}
    code = {count: compile(source_of(count), f"{count}.py", "exec") for count in times}
    for _ in range(ROUNDS):
        for count, compiled in code.items():
            times[count].append(in_child(lambda compiled=compiled: exec(compiled, {"__name__": "dags"})))
    one, fifty = (statistics.median(times[count]) for count in (1, 50))
    verdict = "met" if fifty - one <= STAGES_TARGET_MS else "missed"
    print(
        f"DAG file in a task process: one stage {one:.1f} ms, 50 stages {fifty:.1f} ms, "
        f"{fifty - one:.1f} ms more (target {STAGES_TARGET_MS:.0f}: {verdict})"
    )


if __name__ == "__main__":
    sys.exit(main())

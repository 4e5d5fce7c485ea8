"""A process that parses DAG files as Airflow's DAG processor does, with every way out of the process closed.

``python -m support.parse_dags <file>…`` prints JSON:
file → ``{"error": …, "warnings": […], "dags": {id: …}, "read": [files]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
FORBIDDEN_EVENTS = frozenset({"socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen"})
LOOK_UPS = (
    "airflow.sdk.Variable.get",
    "airflow.sdk.Variable.keys",
    "airflow.sdk.Variable.set",
    "airflow.sdk.Connection.get",
    "airflow.sdk.BaseHook.get_connection",
    "airflow.models.Variable.get",
    "airflow.models.Connection.get_connection_from_secrets",
)


class Watch:
    """An audit hook: it cannot be removed, so it is armed only while files are parsed."""

    def __init__(self) -> None:
        self.armed = False
        self.read: set[str] = set()
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event in FORBIDDEN_EVENTS:
            raise RuntimeError(f"parsing reached out of the process: {event} {arguments!r}")
        if event == "open" and isinstance(arguments[0], str | Path):
            self.read.add(str(arguments[0]))

    def data_files(self) -> list[str]:
        """Files of the checkout that were opened and are no Python code."""
        return sorted(
            name
            for name in self.read
            if Path(name).is_relative_to(ROOT)
            and ".venv" not in Path(name).parts
            and "__pycache__" not in Path(name).parts
            and not name.endswith((".py", ".pyc"))
        )


def _looked_up(*arguments: Any, **_named: Any) -> NoReturn:
    raise RuntimeError(f"parsing looked up a Variable or Connection: {arguments!r}")


def describe(dag: Any) -> dict[str, Any]:
    """What tests check of a DAG."""
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from airflow_relay.operators.guard import Guard

    def is_guarded(task: Any) -> bool:
        if isinstance(task, MappedOperator):
            return isinstance(task.partial_kwargs.get("pre_execute"), Guard)
        return isinstance(task._pre_execute_hook, Guard)

    return {
        "scheduled": bool(dag.timetable.can_be_scheduled),
        "tags": sorted(dag.tags),
        "max_active_runs": dag.max_active_runs,
        "documented": bool(dag.doc_md),
        "guarded": sorted(t.task_id for t in dag.tasks if is_guarded(t)),
        "teardowns": sorted(t.task_id for t in dag.tasks if t.is_teardown),
        "setups": sorted(t.task_id for t in dag.tasks if t.is_setup),
        "tasks": sorted(dag.task_ids),
        "pools": sorted({t.pool for t in dag.tasks}),
    }


def parse(file: Path, watch: Watch) -> dict[str, Any]:
    """Parse one file; whatever it tries beyond Python code becomes its import error."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=file, safe_mode=False, collect_dags=False)
    watch.read.clear()
    watch.armed = True
    try:
        bag.collect_dags(dag_folder=file, safe_mode=False)
    finally:
        watch.armed = False
    return {
        "error": "\n".join(bag.import_errors.values()) or None,
        "warnings": [w for found in bag.captured_warnings.values() for w in found],
        "dags": {dag_id: describe(dag) for dag_id, dag in bag.dags.items()},
        "read": watch.data_files(),
    }


def main() -> None:
    import airflow.models
    import airflow.sdk  # noqa: F401 - what is patched

    watch = Watch()
    for target in LOOK_UPS:
        mock.patch(target, _looked_up).start()
    report = {file: parse(Path(file), watch) for file in sys.argv[1:]}
    sys.stdout.write("REPORT" + json.dumps(report) + "\n")


if __name__ == "__main__":
    main()

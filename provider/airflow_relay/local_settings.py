"""Imports once, before Airflow forks, what every task process needs, and compiles the ledger's statements.

Airflow forks a process for each task, and each imports the SDK, the operators and this package anew, which
takes longer than the bookkeeping of a stage. A forked process inherits what its parent has loaded, so one
line in ``$AIRFLOW_HOME/config/airflow_local_settings.py`` takes that time out of the gap between two stages::

    from airflow_relay.local_settings import *

The line exports no names. It does something only in the processes that fork tasks or parse DAG files
(scheduler, DAG processor, Celery and edge workers); others start as fast as before. A module that cannot be
imported is reported in the log and otherwise ignored: a task that needs it fails by itself, with its own
message.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from collections.abc import Iterator, Sequence

__all__: list[str] = []

log = logging.getLogger(__name__)

# The first words of the command lines whose processes fork tasks or parse DAG files.
FORKING_COMMANDS = (("scheduler",), ("dag-processor",), ("celery", "worker"), ("edge", "worker"))

MODULES = (
    "pendulum",
    "sqlalchemy",
    "jinja2.ext",
    "jsonschema",
    "airflow.version",
    "airflow.sdk",
    "airflow.sdk.execution_time.cache",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.sdk.definitions.asset.metadata",
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.dagbag",
    "airflow.providers.standard.operators.empty",
    "airflow.providers.standard.operators.python",
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.providers.standard.decorators.python",
    "airflow.providers.http.hooks.http",
)

# What a stage's task may use of this package. Left out: the web page, the command line, the simulator, the
# agent server, and the migrations, which run when they are imported.
OWN_PACKAGES = (
    "core",
    "ledger",
    "protocols",
    "hooks",
    "operators",
    "sensors",
    "triggers",
    "policies",
    "dags",
)


def forks_tasks(command_line: Sequence[str]) -> bool:
    """Whether a command line (``sys.argv``) starts an Airflow process that forks tasks or DAG parsing."""
    words = tuple(command_line[1:3])
    return any(words[: len(command)] == command for command in FORKING_COMMANDS)


def own_modules() -> Iterator[str]:
    """The modules of this package that tasks use."""
    package = importlib.import_module(__package__ or "airflow_relay")
    for name in OWN_PACKAGES:
        root = f"{package.__name__}.{name}"
        yield root
        yield from (
            f"{root}.{module.name}"
            for path in package.__path__
            for module in pkgutil.iter_modules([f"{path}/{name}"])
            if module.name != "migrations"
        )


def preload(modules: Sequence[str]) -> list[str]:
    """Import ``modules`` and return the names of those that could not be imported."""
    return [name for name in modules if not _imports(name)]


def rehearse() -> bool:
    """Compile the ledger's statements, for the forked processes to inherit; returns whether it worked."""
    try:
        from airflow_relay.clock import utcnow  # noqa: PLC0415 - this module is imported by all of Airflow
        from airflow_relay.ledger import rehearsal  # noqa: PLC0415 - see above

        rehearsal.rehearse(utcnow())
    except Exception as error:  # noqa: BLE001 - as with an import
        log.warning("Relay could not rehearse its ledger: %s: %s", type(error).__name__, error)
        return False
    return True


def _imports(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a preload must never keep a component from starting
        log.warning("Relay could not preload %s: %s: %s", name, type(error).__name__, error)
        return False
    return True


if forks_tasks(sys.argv):
    preload([*MODULES, *own_modules()])
    rehearse()

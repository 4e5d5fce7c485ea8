from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_relay import local_settings

ONE_LINE = "from airflow_relay.local_settings import *\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["scheduler"],
        ["scheduler", "--num-runs", "1"],
        ["dag-processor"],
        ["celery", "worker", "-q", "default"],
        ["edge", "worker"],
    ],
)
def test_processes_that_fork_tasks_preload(arguments):
    assert local_settings.forks_tasks(["airflow", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["api-server"],
        ["triggerer"],
        ["celery", "flower"],
        ["relay", "items"],
        ["tasks", "test", "scheduler"],
    ],
)
def test_other_processes_start_as_before(arguments):
    assert not local_settings.forks_tasks(["airflow", *arguments])


def test_every_module_of_the_list_exists():
    names = [*local_settings.MODULES, *local_settings.own_modules()]
    assert "airflow_relay.core.guard" in names
    assert "airflow_relay.ledger.store" in names
    assert not [name for name in names if "migrations" in name or "simulation" in name]
    for name in names:
        importlib.import_module(name)


def test_a_module_that_is_missing_is_reported_and_the_rest_is_loaded(caplog):
    sys.modules.pop("colorsys", None)
    with caplog.at_level(logging.WARNING):
        failed = local_settings.preload(["no_such_module_here", "colorsys"])
    assert failed == ["no_such_module_here"]
    assert "could not preload no_such_module_here: ModuleNotFoundError" in caplog.text
    assert "colorsys" in sys.modules


def _modules_after_start(home: Path, *command: str) -> set[str]:
    """What a child forked after Airflow's initialisation has imported, for this command line."""
    (home / "config").mkdir()
    (home / "config" / "airflow_local_settings.py").write_text(ONE_LINE)
    program = textwrap.dedent(
        f"""
        import os, sys
        sys.argv = ["airflow", *{command!r}]
        import airflow.settings
        assert not hasattr(airflow.settings, "preload"), "the line exports names into Airflow's settings"
        pid = os.fork()
        if pid == 0:
            print("\\n".join(sys.modules), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    env = {**os.environ, "AIRFLOW_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_forked_task_process_finds_everything_imported(tmp_path):
    wanted = {*local_settings.MODULES, *local_settings.own_modules()}
    assert wanted - _modules_after_start(tmp_path, "scheduler") == set()


def test_the_api_server_imports_nothing_of_it(tmp_path):
    loaded = _modules_after_start(tmp_path, "api-server")
    assert "airflow_relay.local_settings" in loaded
    assert not loaded & set(local_settings.own_modules())


def test_a_rehearsal_that_fails_keeps_nothing_from_starting(caplog, monkeypatch):
    from airflow_relay.ledger import rehearsal

    def fail(_now):
        raise RuntimeError("no room")

    monkeypatch.setattr(rehearsal, "rehearse", fail)
    with caplog.at_level(logging.WARNING):
        assert not local_settings.rehearse()
    assert "could not rehearse its ledger: RuntimeError: no room" in caplog.text

"""DAG files are parsed in a process of their own, as Airflow does it, and reported as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def parse_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Path]], dict[str, Any]]:
    """Parses files and returns what ``support.parse_dags`` reports, by file name."""

    def parse(files: Sequence[Path], **env: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "support.parse_dags", *map(str, files)],
            env={
                **os.environ,
                "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        _, mark, report = done.stdout.rpartition("REPORT")
        assert mark, f"{done.stdout}\n{done.stderr}"
        return {Path(name).name: found for name, found in json.loads(report).items()}

    return parse

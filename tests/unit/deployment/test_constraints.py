from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def test_constraints_are_versions_only():
    """No address and no path: whoever installs uses an index of their own."""
    for line in LINES:
        requirement = Requirement(line)
        assert requirement.url is None, line
        assert re.fullmatch(r"==\S+", str(requirement.specifier)), line


def test_constraints_cover_every_dependency_on_every_supported_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [
        *project["dependencies"],
        *(x for extra in project["optional-dependencies"].values() for x in extra),
    ]
    pins = [Requirement(line) for line in LINES]
    for wanted in map(Requirement, names):
        if wanted.name == project["name"]:
            continue
        for python in ("3.10", "3.11", "3.12", "3.13"):
            environment = {"python_version": python, "python_full_version": f"{python}.0"}
            found = [
                pin
                for pin in pins
                if _same(pin.name, wanted.name) and (pin.marker is None or pin.marker.evaluate(environment))
            ]
            assert len(found) == 1, (wanted.name, python)
            pinned = str(found[0].specifier).removeprefix("==")
            assert wanted.specifier.contains(pinned), (wanted.name, python, pinned)


def _same(one: str, other: str) -> bool:
    return re.sub(r"[-_.]+", "-", one).lower() == re.sub(r"[-_.]+", "-", other).lower()


def test_the_tests_run_with_the_pinned_airflow():
    assert f"apache-airflow=={version('apache-airflow')}" in LINES

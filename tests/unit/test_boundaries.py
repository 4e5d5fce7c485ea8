"""The rings depend on each other in one direction only; import-linter checks the same in ``make lint``."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

OUTER_RINGS = (
    "airflow_relay.ledger",
    "airflow_relay.hooks",
    "airflow_relay.operators",
    "airflow_relay.sensors",
    "airflow_relay.triggers",
    "airflow_relay.policies",
    "airflow_relay.dags",
    "airflow_relay.plugin",
    "airflow_relay.local_agent",
)
RING_OF_AIRFLOW = tuple(name for name in OUTER_RINGS if name != "airflow_relay.ledger")

IMPORT_ALL_WITH_SOME_BLOCKED = """
    import importlib, pkgutil, sys

    blocked = tuple({blocked!r})
    left_out = tuple({left_out!r})

    class Block:
        def find_spec(self, name, path=None, target=None):
            if any(name == root or name.startswith(root + ".") for root in blocked):
                raise ImportError(f"{{name}} is blocked here")
            return None

    sys.meta_path.insert(0, Block())
    package = importlib.import_module({package!r})
    names = [package.__name__]
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        # Alembic runs the migrations, and a command line runs __main__; neither is imported.
        run_not_imported = ".migrations" in module.name or module.name.endswith(".__main__")
        if not run_not_imported and module.name not in left_out:
            importlib.import_module(module.name)
            names.append(module.name)
    print(len(names))
"""


def _import_all(package: str, *, blocked: tuple[str, ...], left_out: tuple[str, ...] = ()) -> int:
    """Import every module of a package in a fresh process and return how many there are."""
    program = textwrap.dedent(
        IMPORT_ALL_WITH_SOME_BLOCKED.format(package=package, blocked=blocked, left_out=left_out)
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_core_imports_without_airflow_sqlalchemy_and_the_outer_rings():
    blocked = (
        "airflow",
        "sqlalchemy",
        "alembic",
        "httpx",
        "airflow_relay.protocols",
        *OUTER_RINGS,
    )
    assert _import_all("airflow_relay.core", blocked=blocked) > 5


def test_protocols_import_without_airflow_sqlalchemy_and_any_transport():
    transports = ("httpx", "requests", "aiohttp", "urllib3", "httpcore")
    blocked = ("airflow", "sqlalchemy", "alembic", *transports, *OUTER_RINGS)
    assert _import_all("airflow_relay.protocols", blocked=blocked) > 1


def test_the_ledger_imports_without_the_airflow_ring():
    assert _import_all("airflow_relay.ledger", blocked=("airflow_relay.protocols", *RING_OF_AIRFLOW)) > 1


def test_the_simulation_imports_without_airflow_and_the_ledger():
    reader = ("airflow_relay.simulation.from_ledger",)  # `--from-ledger`: the one module that reads history
    blocked = ("airflow", "sqlalchemy", *OUTER_RINGS)
    assert _import_all("airflow_relay.simulation", blocked=blocked, left_out=reader) > 5


def test_the_block_blocks():
    with pytest.raises(AssertionError, match=r"airflow_relay\.core is blocked here"):
        _import_all("airflow_relay.core", blocked=("airflow_relay.core",))

"""What the provider tells Airflow of itself, and which Airflow it refuses."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperatorLink
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.triggers.base import BaseTrigger

import airflow_relay
from airflow_relay import floor
from airflow_relay.get_provider_info import get_provider_info

ROOT = Path(__file__).resolve().parents[2]
INFO = get_provider_info()


def imported(path: str):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def listed(kind: str) -> list[str]:
    return [module for entry in INFO[kind] for module in entry["python-modules"]]


def test_it_fits_the_schema_of_the_installed_airflow():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


def test_it_names_no_key_that_the_schema_does_not_know():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    assert set(INFO) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("hooks", BaseHook),
        ("operators", BaseOperator),
        ("sensors", BaseSensorOperator),
        ("triggers", BaseTrigger),
    ],
)
def test_each_module_holds_a_class_of_its_kind(kind, base):
    for name in listed(kind):
        module = importlib.import_module(name)
        own = [
            v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base) and v is not base
        ]
        assert any(v.__module__ == name for v in own), name


def test_what_users_put_into_their_dags_is_listed():
    public = {
        value.__module__
        for name in airflow_relay.__all__
        if isinstance(value := getattr(airflow_relay, name), type) and issubclass(value, BaseOperator)
    }
    assert public
    assert public <= {*listed("operators"), *listed("sensors")}


@pytest.mark.parametrize("entry", INFO["connection-types"], ids=lambda e: e["connection-type"])
def test_each_connection_type_is_that_of_its_hook(entry):
    hook = imported(entry["hook-class-name"])
    assert (hook.conn_type, hook.hook_name) == (entry["connection-type"], entry["hook-name"])


def test_links_can_be_loaded():
    assert all(issubclass(imported(path), BaseOperatorLink) for path in INFO["extra-links"])


def test_airflow_loads_the_plugin_by_default_and_once():
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert [plugin.name for plugin in plugins].count("relay") == 1
    assert errors == {}
    assert "/relay" in [app["url_prefix"] for app in plugins_manager.get_fastapi_plugins()[0]]


def test_the_option_that_the_code_reads_is_declared():
    from airflow_relay.hooks.objects import RESULTS_OPTION, RESULTS_SECTION

    assert RESULTS_OPTION in INFO["config"][RESULTS_SECTION]["options"]


def test_airflow_finds_the_provider_with_all_that_it_brings():
    manager = ProvidersManager()
    assert "airflow-provider-relay" in manager.providers
    assert {"relay_ledger", "relay_agent"} <= set(ProvidersManagerTaskRuntime().hooks)
    assert "airflow_relay.links.ItemLogLink" in manager.extra_links_class_names
    assert any(f.__module__ == "airflow_relay.cli.definition" for f in manager.cli_command_functions)


def test_reading_the_information_loads_nothing_of_the_ring():
    code = (
        "import sys; from airflow_relay.get_provider_info import get_provider_info; get_provider_info(); "
        "sys.exit(any(m == 'airflow' or m.startswith('sqlalchemy') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The floor


@pytest.mark.parametrize(
    ("package", "found", "needed"),
    [
        ("apache-airflow-core", "3.2.9", "3.3"),
        ("apache-airflow-core", "2.11.0", "3.3"),
        ("apache-airflow-providers-standard", "1.15.4", "1.16"),
        ("apache-airflow-providers-standard", None, "1.16"),
    ],
)
def test_an_airflow_below_the_floor_is_refused_by_name_with_the_cure(monkeypatch, package, found, needed):
    monkeypatch.setattr(floor, "version", faked({package: found}))
    with pytest.raises(ImportError) as refused:
        floor.check()
    said = str(refused.value)
    assert f"{package} is {found or 'not installed'}, at least {needed} is needed" in said
    assert f"'{package}>={needed}'" in said


@pytest.mark.parametrize("found", ["3.3.0", "3.3.0rc1", "3.3.2", "3.10.0", "4.0.0"])
def test_an_airflow_on_the_floor_or_above_is_not(monkeypatch, found):
    monkeypatch.setattr(floor, "version", faked({"apache-airflow-core": found}))
    floor.check()


def faked(versions):
    def version(name: str) -> str:
        found = versions.get(name, "99.0")
        if found is None:
            raise PackageNotFoundError(name)
        return found

    return version


def packages_of_the_ring() -> list[str]:
    needless = {"core", "ledger", "protocols", "simulation", "local_agent", "operations"}
    return [
        m.name for m in pkgutil.iter_modules(airflow_relay.__path__) if m.ispkg and m.name not in needless
    ]


@pytest.mark.parametrize("package", packages_of_the_ring())
def test_each_package_of_the_ring_refuses_before_it_imports_airflow(package):
    code = (
        "import importlib.metadata as m; real = m.version; "
        "m.version = lambda n: '3.2.0' if n == 'apache-airflow-core' else real(n)\n"
        f"try: import airflow_relay.{package}\n"
        "except ImportError as e: assert 'at least 3.3 is needed' in str(e), e\n"
        "else: raise SystemExit('it was imported')\n"
        "import sys; assert 'airflow' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# The wheel


def test_the_wheel_brings_migrations_templates_and_entry_point(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "airflow_relay/py.typed",
        "airflow_relay/ledger/migrations/env.py",
        "airflow_relay/ledger/migrations/versions/r0001_initial.py",
        "airflow_relay/ledger/migrations/versions/r0002_recovery_and_dag_holds.py",
        "airflow_relay/plugin/templates/front.html",
        "airflow_relay/plugin/static/relay.css",
        "airflow_relay/cli/definition.py",
    ):
        assert needed in names
    assert not [n for n in names if n.startswith(("tests/", "dags/", "include/")) or "__pycache__" in n]
    assert any(n.endswith("licenses/LICENSE") for n in names)
    (entry,) = [n for n in names if n.endswith("entry_points.txt")]
    for group in (b"[apache_airflow_provider]", b"[airflow.plugins]"):
        assert group in zipfile.ZipFile(wheel).read(entry)

"""docker-compose.yaml, read as Compose would read it; no Docker engine is needed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from airflow.configuration import conf
from cryptography.fernet import Fernet
from sqlalchemy.engine import make_url

import write_env
from airflow_config import PRELOAD, RECOMMENDED

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yaml"
DOCKERFILE = ROOT / "include" / "docker" / "Dockerfile"
INIT_SCRIPT = ROOT / "include" / "docker" / "create-databases.sh"
LONG_RUNNING = {
    "postgres",
    "redis",
    "api-server",
    "scheduler",
    "dag-processor",
    "triggerer",
    "worker-1",
    "worker-2",
    "agent-server",
}
AIRFLOW_SERVICES = (LONG_RUNNING | {"init"}) - {"postgres", "redis", "agent-server"}
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::(?P<mode>[?-])(?P<text>[^}]*))?\}")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|FERNET_KEY")


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load(COMPOSE.read_text())


@pytest.fixture(scope="module")
def services(compose) -> dict:
    return compose["services"]


@pytest.fixture(scope="module")
def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def interpolated() -> dict:
    """The services as started with a fresh .env."""
    text = write_env.filled((ROOT / ".env.example").read_text())
    values = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return yaml.safe_load(VARIABLE.sub(lambda match: values[match["name"]], COMPOSE.read_text()))["services"]


def test_all_parts_are_there_with_two_celery_workers(services):
    assert set(services) == LONG_RUNNING | {"init"}
    commands = [tuple(service["command"]) for service in services.values() if "command" in service]
    assert commands.count(("celery", "worker")) == 2
    for component in ("api-server", "scheduler", "dag-processor", "triggerer"):
        assert services[component]["command"] == [component]
    assert "airflow_relay.local_agent" in services["agent-server"]["command"]


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_every_long_running_service_has_a_health_check(services, name):
    check = services[name]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= set(check)
    assert services[name]["restart"] == "unless-stopped"


def test_dependencies_wait_for_something_that_happens(services):
    for name, service in services.items():
        for target, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if target == "init" else "service_healthy"
            assert how["condition"] == expected, (name, target)
            assert target == "init" or "healthcheck" in services[target], (name, target)
    assert set(services["init"]["depends_on"]) == {"postgres"}
    for name in AIRFLOW_SERVICES - {"init"}:
        assert "init" in services[name]["depends_on"], name


def test_no_secret_is_committed(compose):
    """A value whose name says secret is one that Compose refuses to do without; so is a URL's password."""
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if SECRET_NAME.search(key):
                assert VARIABLE.fullmatch(value), (name, key)
                assert VARIABLE.fullmatch(value)["mode"] == "?", (name, key)
            for password in re.findall(r"://[^@/:]*:([^@]*)@", value):
                assert VARIABLE.fullmatch(password), (name, key)
    for match in VARIABLE.finditer(COMPOSE.read_text()):
        if SECRET_NAME.search(match["name"]):
            assert match["mode"] == "?", f"${{{match['name']}}} has a default or may be empty"


def test_the_example_names_every_variable_and_holds_no_secret(example):
    used = {match["name"] for match in VARIABLE.finditer(COMPOSE.read_text())}
    assert used == set(example)
    assert {name for name, value in example.items() if value} == {"AIRFLOW_ADMIN_USER", "AIRFLOW_PORT"}
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_written_secrets_are_fresh_and_of_the_right_form(example):
    text = (ROOT / ".env.example").read_text()
    one, two = write_env.filled(text), write_env.filled(text)
    values = dict(line.split("=", 1) for line in one.splitlines() if line and not line.startswith("#"))
    assert all(values.values())
    assert Fernet(values["AIRFLOW_FERNET_KEY"])
    secret_lines = [line for line in one.splitlines() if line.split("=")[0] in example and line not in text]
    assert len(secret_lines) == len(example) - 2
    assert not set(secret_lines) & set(two.splitlines())


def test_an_existing_env_file_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(write_env, "ROOT", tmp_path)
    (tmp_path / ".env.example").write_text("A_PASSWORD=\n")
    assert write_env.main() == 0
    written = (tmp_path / ".env").read_text()
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert write_env.main() == 1
    assert (tmp_path / ".env").read_text() == written
    assert "exists already" in capsys.readouterr().err


def test_every_airflow_setting_exists_in_airflow(services):
    """A misspelt setting would be ignored without a word."""
    for name in AIRFLOW_SERVICES:
        for key in services[name]["environment"]:
            if key.startswith("AIRFLOW__"):
                _, section, option = key.lower().split("__", 2)
                assert option in conf.configuration_description[section]["options"], key


@pytest.mark.parametrize("name", sorted(AIRFLOW_SERVICES))
def test_airflow_runs_with_the_recommended_configuration(services, name):
    environment = services[name]["environment"]
    for section, options in RECOMMENDED.items():
        for option, value in options.items():
            assert environment[f"AIRFLOW__{section}__{option}".upper()] == value
    assert environment["AIRFLOW__CORE__EXECUTOR"] == "CeleryExecutor"


def test_the_image_preloads_what_tasks_need():
    local_settings = ROOT / "include" / "docker" / "airflow_local_settings.py"
    assert PRELOAD.strip() in local_settings.read_text()
    assert "include/docker/airflow_local_settings.py /opt/airflow/config/" in DOCKERFILE.read_text()


def test_airflow_and_the_ledger_have_databases_of_their_own(interpolated):
    environment = interpolated["scheduler"]["environment"]
    metadata = make_url(environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    ledger = make_url(environment["AIRFLOW_CONN_RELAY_LEDGER"])
    backend = make_url(environment["AIRFLOW__CELERY__RESULT_BACKEND"].removeprefix("db+"))
    script = INIT_SCRIPT.read_text()
    assert metadata.database != ledger.database
    assert (backend.database, backend.password) == (metadata.database, metadata.password)
    passwords = interpolated["postgres"]["environment"]
    for url, variable in ((metadata, "AIRFLOW_DB_PASSWORD"), (ledger, "RELAY_LEDGER_PASSWORD")):
        assert url.host == "postgres"
        assert f"CREATE DATABASE {url.database} OWNER {url.username};" in script
        assert f"CREATE ROLE {url.username} LOGIN" in script
        assert passwords[variable] == url.password
        assert f"${variable}" in script
    assert subprocess.run(["sh", "-n", INIT_SCRIPT], check=False).returncode == 0
    assert f"./{INIT_SCRIPT.relative_to(ROOT)}:/docker-entrypoint-initdb.d/" in str(
        interpolated["postgres"]["volumes"]
    )


def test_the_agent_connection_points_at_the_agent_server(interpolated):
    connection = json.loads(interpolated["worker-1"]["environment"]["AIRFLOW_CONN_RELAY_AGENT"])
    agent = interpolated["agent-server"]
    assert connection["conn_type"] == "http"
    assert connection["host"] in interpolated
    assert f"--port={connection['port']}" in agent["command"]
    assert connection["password"] == agent["environment"]["RELAY_AGENT_TOKEN"]
    assert f":{connection['port']}/health" in str(agent["healthcheck"])


def test_the_agent_server_understands_its_command_line(services, monkeypatch):
    from airflow_relay.local_agent import command

    words = services["agent-server"]["command"]
    assert words[:3] == ["python", "-m", "airflow_relay.local_agent"]
    monkeypatch.setenv("RELAY_AGENT_TOKEN", "x")
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    settings = command.settings_from(parser.parse_args(words[3:]))
    assert settings.port == 8765


def test_paths_and_volumes_exist(compose, services):
    for service in services.values():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (ROOT / source).exists(), volume
            else:
                assert source in compose["volumes"], volume
    for line in re.findall(r"^COPY .*", DOCKERFILE.read_text(), re.MULTILINE):
        sources = [word for word in line.split()[1:-1] if not word.startswith("--")]
        assert all((ROOT / source).exists() for source in sources), line


def test_the_image_has_the_airflow_that_the_tests_ran_with():
    pinned = re.search(r"^apache-airflow==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert f"ARG AIRFLOW_VERSION={pinned}\n" in DOCKERFILE.read_text()


def test_only_the_api_server_is_reachable_and_from_this_machine_only(services):
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert list(published) == ["api-server"]
    assert all(port.startswith("127.0.0.1:") for port in published["api-server"])

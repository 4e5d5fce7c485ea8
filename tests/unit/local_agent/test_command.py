from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from airflow_relay.local_agent.command import add_arguments, run, settings_from
from airflow_relay.local_agent.settings import Latency


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_command_line_becomes_settings(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    settings = settings_from(
        parse("--port", "0", "--latency", "1:3", "--workers", "4", "--token-env", "MY_TOKEN")
    )
    assert (settings.port, settings.workers, settings.token) == (0, 4, "s3cret")
    assert settings.backends == ("extractive",)
    assert settings.latency == Latency(1, 3)
    assert not settings.faults_allowed
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--token-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
        (["--allow-faults"], "RELAY_AGENT_ADMIN_TOKEN is not set"),
        (["--fault", "lost"], "only together with --allow-faults"),
        (["--state", "/nowhere/at/all.db"], "the state file /nowhere/at/all.db cannot be used"),
        (["--host", "256.1.1.1", "--port", "0"], "cannot listen on 256.1.1.1:0"),
    ],
)
def test_what_cannot_start_exits_with_2_and_a_reason(arguments, reason, monkeypatch, capsys):
    monkeypatch.delenv("RELAY_AGENT_ADMIN_TOKEN", raising=False)
    monkeypatch.setattr("airflow_relay.local_agent.server._log_as_json", lambda: None)
    assert run(parse(*arguments)) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"],
        ["--port", "70000"],
        ["--latency", "3:1"],
        ["--latency", "-1"],
        ["--fault", "no_such"],
    ],
)
def test_values_out_of_range_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as exit_info:
        parse(*arguments)
    assert exit_info.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_latency_is_the_same_for_the_same_request_and_within_its_bounds():
    latency = Latency.parse("2:6")
    found = [latency.of(f"request {n}") for n in range(50)]
    assert all(2 <= seconds <= 6 for seconds in found)
    assert len(set(found)) > 40
    assert latency.of("request 1") == found[1]
    assert Latency.parse("2").of("anything") == 2.0


def test_importing_the_command_loads_no_heavy_library():
    code = (
        "import sys, airflow_relay.local_agent.command\n"
        "print([name for name in ('sklearn', 'numpy', 'starlette', 'airflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The commands as Airflow's parser knows them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from airflow._shared.module_loading import import_string
from airflow.cli.cli_config import ActionCommand

from airflow_relay.cli.definition import get_relay_commands
from support.cli import relay


def actions(commands, path=()):
    for command in commands:
        if isinstance(command, ActionCommand):
            yield (*path, command.name), command
        else:
            yield from actions(command.subcommands, (*path, command.name))


COMMANDS = dict(actions(get_relay_commands()))
BRING_THEIR_OWN = {"agent-server", "simulate"}
"""Commands whose module adds its own arguments."""


def test_the_commands_of_the_contract_are_there():
    names = {path[1] for path in COMMANDS}
    assert names >= {
        *("init", "items", "show", "log", "rewind", "discard", "dead-letters", "breakers", "hold", "status"),
        *(
            "dispatch",
            "check-recovery",
            "doctor",
            "clean",
            "classify-errors",
            "agent-server",
            "move",
            "simulate",
        ),
        *("release", "tracks"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_command_can_be_loaded_and_explains_itself(path):
    command = COMMANDS[path]
    function = command.func.__closure__[0].cell_contents
    assert callable(import_string(function))
    helped = relay(*path[1:], "--help")
    assert helped.code == 0
    assert command.help.split()[0] in helped.out


@pytest.mark.parametrize("path", [p for p in COMMANDS if p[1] not in BRING_THEIR_OWN], ids=" ".join)
def test_each_command_writes_json_tables_or_plain_lines(path):
    (output,) = [arg for arg in COMMANDS[path].args if "--output" in arg.flags]
    assert set(output.kwargs["choices"]) == {"json", "table", "plain"}


def test_listing_the_commands_loads_none_of_them():
    code = (
        "import airflow.cli.cli_config, sys; before = set(sys.modules); "
        "from airflow_relay.cli.definition import get_relay_commands; get_relay_commands(); "
        "new = set(sys.modules) - before; "
        "heavy = ('airflow_relay.ledger', 'airflow_relay.hooks', 'airflow_relay.local_agent', 'alembic'); "
        "sys.exit(str([m for m in new if m.startswith(heavy)] or 0))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ran.stderr.strip() in ("", "0"), ran.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ("rewind", "only-an-item"),
        ("items", "--state", "sleeping"),
        ("items", "--limit", "0"),
        ("hold", "P2", "--for", "soon"),
        ("check-recovery", "--max-age", "3"),
        ("clean",),
        ("dead-letters", "explode"),
        ("items", "-o", "yaml"),
    ],
    ids=" ".join,
)
def test_usage_errors_are_exit_code_2_on_stderr(argv):
    answer = relay(*argv)
    assert answer.code == 2
    assert "error:" in answer.err  # Airflow's parser writes the command's help to stdout beside it


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "²", "9" * 30])
def test_a_count_that_is_none_is_refused_with_what_to_give(limit):
    answer = relay("items", f"--limit={limit}")
    assert answer.code == 2
    assert "--limit" in answer.err
    assert "give a whole number from 1 to 1000000" in answer.err

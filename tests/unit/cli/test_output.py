from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.core.states import ItemState

AT = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
ROWS = [
    {"item": "a", "state": ItemState.READY, "since": AT, "for": timedelta(hours=3, minutes=20), "n": None},
    {"item": "b" * 100, "state": ItemState.DONE, "since": AT, "for": timedelta(seconds=4.2), "n": None},
]
TABLE = Table("", ("item", "state", "since", "for", "n"), ROWS)


def written(capsys, form, document=ROWS, *tables, **more):
    output.write(form, document, *(tables or (TABLE,)), **more)
    return capsys.readouterr().out


def test_json_is_whole_and_machine_readable(capsys):
    first, second = json.loads(written(capsys, "json"))
    assert first == {
        "item": "a",
        "state": "ready",
        "since": "2026-03-02T09:00:00+00:00",
        "for": 12000.0,
        "n": None,
    }
    assert second["item"] == "b" * 100


def test_a_table_is_aligned_cut_and_drops_empty_columns(capsys):
    head, rule, first, second = written(capsys, "table").splitlines()
    assert head.split() == ["item", "state", "since", "for"]
    assert "…" in second
    assert "3 h 20 min" in first
    assert head.index("state") == second.index("done") == first.index("ready")
    assert set(rule) <= {"-", " "}


def test_plain_is_tab_separated_with_every_column_and_nothing_cut(capsys):
    head, _, second = written(capsys, "plain").splitlines()
    assert head == "item\tstate\tsince\tfor\tn"
    assert second == f"{'b' * 100}\tdone\t2026-03-02 09:00:00Z\t4.2 s\t"


def test_a_wide_table_wraps_what_is_long(capsys):
    cure = "do this " * 20
    told = written(capsys, "table", [], Table("", ("cure",), [{"cure": cure}]), wide=True)
    assert " ".join(told.split()[2:]) == cure.strip()


def test_several_tables_carry_their_titles(capsys):
    told = written(capsys, "plain", [], Table("One", ("x",), [{"x": 1}]), Table("Two", ("y",), [{"y": 2}]))
    assert told.splitlines() == ["# One", "x", "1", "# Two", "y", "2"]


def test_no_rows_are_said_in_words_in_a_table_and_are_an_empty_list_in_json(capsys):
    nothing = Table("", ("x",), [])
    assert written(capsys, "table", [], nothing, empty="No items.") == "No items.\n"
    assert json.loads(written(capsys, "json", [], nothing)) == []


@pytest.mark.parametrize("form", ["table", "plain"])
def test_nothing_in_a_cell_can_drive_the_terminal_or_break_the_line(capsys, form):
    evil = "a\x1b[2J\x07b\nc\td\u202e"
    told = written(capsys, form, [], Table("", ("x",), [{"x": evil}]))
    assert told.splitlines()[-1] == "a\\x1b[2J\\x07b c d\\u202e"


def test_a_reader_that_goes_away_is_no_error():
    code = "from airflow_relay.cli.output import print_lines; print_lines([str(n) for n in range(200000)])"
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (timedelta(seconds=4.23), "4.2 s"),
        (timedelta(minutes=4, seconds=5), "4 min 5 s"),
        (timedelta(hours=3, minutes=20), "3 h 20 min"),
        (timedelta(days=3, hours=2), "3 d 2 h"),
        (timedelta(seconds=-30), "-30.0 s"),
    ],
)
def test_spans_in_their_two_largest_units(value, said):
    assert output.span(value) == said

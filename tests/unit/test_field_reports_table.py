"""The table of field reports names tests that exist, and leaves no report out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT_JOBS = "tests/unit/agent_jobs/test_field_reports.py"
NUMBERS = (
    *(1, 2, 3, 4, 6, 8, 9, 10, 11, 14),
    *(15, 16, 17, 18, 21, 22, 23, 25, 26, 27, 29, 30, 31, 32, 33, 34, 35, 37),
    *(38, 39, 42, 44, 45, 46, 47, 49),
    *(51, 52, 55, 56, 57, 58, 60, 63, 64, 65),
)
"""Those of the collection, which has gaps."""
ROWS = dict(
    re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "field-reports.md").read_text(), flags=re.MULTILINE)
)


def named(row: str) -> list[tuple[str, str]]:
    """(file, test) for each test that a row names; a file holds for the tests behind it."""
    file, found = AGENT_JOBS, []
    for word in re.findall(r"`([^`]+)`", row):
        if word.startswith("tests/"):
            file = word
        elif word.endswith(".py"):
            file = f"tests/unit/agent_jobs/{word}"
        elif word.startswith("test_"):
            found.append((file, word))
    return found


def test_every_report_has_a_row() -> None:
    assert sorted(int(number) for number in ROWS) == sorted(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_test_that_a_row_names_is_there(number: int) -> None:
    tests = named(ROWS[str(number)])
    assert tests, "a report without a test"
    for file, name in tests:
        start = name.removesuffix("…")
        found = re.findall(r"^ *(?:async )?def (test_\w+)\(", (ROOT / file).read_text(), flags=re.MULTILINE)
        if name.endswith("…"):
            assert any(test.startswith(start) for test in found), f"{file}: no test begins with {start}"
        else:
            assert name in found, f"{file}: no {name}"

"""Declarations that must be refused when their file is parsed; each file's docstring is the text expected."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILES = sorted((Path(__file__).parent / "must_fail").glob("*.py"))


@pytest.fixture(scope="module")
def reports(parse_files: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return parse_files(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_it_is_refused_with_the_stage_and_the_cure(reports: dict[str, Any], file: Path) -> None:
    expected = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
    error = " ".join((reports[file.name]["error"] or "").split())
    assert expected
    assert "PipelineError" in error
    assert expected in error


def test_the_folder_is_not_empty() -> None:
    assert len(FILES) > 20

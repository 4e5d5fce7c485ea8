from __future__ import annotations

import re

import pytest
from content.names import file_stem
from hypothesis import given
from hypothesis import strategies as st

SAFE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@given(st.text(max_size=200))
def test_any_key_gives_a_safe_name(key):
    stem = file_stem(key)
    assert SAFE.fullmatch(stem)
    assert len(stem) <= 80


@given(st.text(max_size=200))
def test_a_name_is_never_the_name_of_another_key(key):
    stem = file_stem(key)
    assert stem == key or file_stem(stem) != stem


@pytest.mark.parametrize(
    "key",
    [
        "../../etc/passwd",
        "a/b",
        "a b",
        "A",
        "",
        ".",
        "..",
        "con",
        "lpt1",
        "\x00",
        "é",
        "a" * 200,
        "-rf",
        "a--b",
    ],
)
def test_hostile_keys_get_a_hash(key):
    assert re.fullmatch(r".*-[0-9a-f]{12}", file_stem(key))


def test_a_plain_key_keeps_its_name():
    assert file_stem("lost-worker") == "lost-worker"


def test_keys_that_differ_only_in_case_or_marks_stay_apart():
    keys = ["a b", "A B", "a_b", "a/b", "a-b", "a.b"]
    assert len({file_stem(key) for key in keys}) == len(keys)

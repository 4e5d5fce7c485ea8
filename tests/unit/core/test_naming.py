"""Names derived from items: different items never share one, and Airflow takes each of them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_relay.core.naming import (
    MAX_KEY,
    MAX_RUN_ID,
    NAME_PATTERN,
    dag_id,
    fallback_dag_id,
    run_id,
    slug,
)

ALLOWED_RUN_ID = re.compile(r"^[A-Za-z0-9_.~:+-]+$")
"""Airflow's default ``[scheduler] allowed_run_id_pattern``."""

keys = st.text(min_size=1, max_size=MAX_KEY)
look_alikes = st.text(alphabet="aB.-~ /ä0", min_size=1, max_size=6)
"""Short and from few characters, so that two of them often differ only by what sanitising removes."""
names = st.from_regex(re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}", re.ASCII), fullmatch=True).filter(
    lambda name: "__" not in name
)
epochs = st.integers(min_value=1, max_value=10**6)


@given(names, names, keys, epochs)
def test_airflow_takes_every_run_id(pipeline, stage, key, epoch):
    found = run_id(pipeline, stage, key, epoch)
    assert ALLOWED_RUN_ID.match(found)
    assert ".." not in found
    assert len(found) <= MAX_RUN_ID


def test_the_longest_names_still_fit():
    found = run_id("p" * 64, "s" * 64, "ü" * MAX_KEY, 10**9)
    assert len(found) <= MAX_RUN_ID
    assert len(fallback_dag_id("p" * 64, "s" * 64)) <= MAX_RUN_ID


@given(look_alikes, look_alikes)
def test_two_keys_never_share_a_slug(one, other):
    assert (slug(one) == slug(other)) == (one == other)


@given(keys)
def test_a_key_that_equals_the_slug_of_another_gets_another_slug(key):
    made = slug(key)
    if made != key:
        assert slug(made) != made


@given(st.tuples(names, names, look_alikes, epochs), st.tuples(names, names, look_alikes, epochs))
def test_two_grants_never_share_a_run_id(one, other):
    assert (run_id(*one) == run_id(*other)) == (one == other)


@given(names, names, names, names)
def test_two_stages_never_share_a_dag_id(a, b, c, d):
    assert (dag_id(a, b) == dag_id(c, d)) == ((a, b) == (c, d))


def test_an_underscore_at_the_seam_makes_no_difference():
    assert dag_id("x_", "y") == "x___y"
    assert not NAME_PATTERN.match("_y"), "else x + _y would be the same DAG"


@given(keys)
def test_a_slug_is_one_safe_part_of_a_path_and_of_a_url(key):
    found = slug(key)
    assert set(found) <= set(string.ascii_letters + string.digits + "_.~-")
    assert found not in ("", ".", "..")
    assert not found.startswith((".", "-"))
    assert len(found) <= 93


@pytest.mark.parametrize(
    ("key", "start"),
    [
        ("how-to-pause", "how-to-pause"),
        ("v1.2_final", "v1.2_final"),
        ("How do I pause?", "How-do-I-pause~"),
        ("日本", "~"),
        ("..", "~"),
        ("x" * 200, "x" * 80 + "~"),
    ],
)
def test_a_readable_key_stays_readable(key, start):
    assert slug(key).startswith(start)


def test_a_name_may_not_begin_with_a_digit_or_be_too_long():
    assert NAME_PATTERN.match("a" * 64)
    assert not NAME_PATTERN.match("a" * 65)
    assert not NAME_PATTERN.match("1a")
    assert not NAME_PATTERN.match("a b")
    assert not NAME_PATTERN.match("a\n")

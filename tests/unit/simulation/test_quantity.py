"""Numbers of a scenario: shapes, their inverse distribution functions, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.quantity import Quantity

SHAPES = [
    Quantity(value=3),
    Quantity(uniform=(8, 22)),
    Quantity(triangular=(1, 4, 9)),
    Quantity.model_validate({"lognormal": {"median": 15, "p95": 40}}),
    Quantity(choice={0: 1, 1: 5}),
    Quantity(sample=(1, 2, 5)),
]


@pytest.mark.parametrize(
    ("quantity", "share", "value"),
    [
        (SHAPES[0], 0.2, 3),
        (SHAPES[1], 0.5, 15),
        (SHAPES[2], 3 / 8, 4),
        (SHAPES[3], 0.5, 15),
        (SHAPES[3], 0.95, 40),
        (SHAPES[4], 0.1, 0),
        (SHAPES[4], 0.2, 1),
        (SHAPES[5], 0.25, 1.5),
        (SHAPES[5], 0.999999, 5),
    ],
)
def test_each_shape_gives_the_value_at_a_share(quantity, share, value):
    assert quantity.quantile()(share) == pytest.approx(value, rel=1e-3)


@given(
    st.sampled_from(SHAPES),
    st.floats(0.001, 0.998),
    st.floats(0, 0.001),
)
def test_a_larger_share_never_gives_a_smaller_value(quantity, share, more):
    at = quantity.quantile()
    assert at(share + more) >= at(share) - 1e-12


@given(st.sampled_from(SHAPES), st.floats(0.1, 10), st.floats(0.001, 0.999))
def test_scaling_scales_every_value(quantity, factor, share):
    assert quantity.scaled(factor).quantile()(share) == pytest.approx(factor * quantity.quantile()(share))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "exactly one"),
        ({"value": 1, "uniform": [1, 2]}, "exactly one"),
        ({"uniform": [2, 1]}, "ascending"),
        ({"lognormal": {"median": 5, "p95": 2}}, "below median"),
        ({"choice": {1: 0}}, "weights"),
        ({"sample": []}, "at least one"),
        ({"value": 1, "source": "a", "assumption": "b"}, "not both"),
        (True, "truth value"),
        ({"value": float("nan")}, "finite"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(table, words):
    with pytest.raises(ValidationError, match=words):
        Quantity.model_validate(table)


def test_a_number_says_where_it_comes_from():
    assert Quantity(value=1, source="page 3").origin == "source: page 3"
    assert Quantity(value=1, assumption="a guess").origin == "ASSUMPTION: a guess"
    assert Quantity(value=1).origin == "given by the user"


def test_chance_is_a_function_of_seed_and_name_alone():
    assert Chance(1).at(5, 6) == Chance(1).at(5, 6)
    assert len({Chance(s).at(a, b) for s in range(5) for a in range(5) for b in range(5)}) == 125


def test_chance_is_even():
    numbers = [Chance(7).at(1, n) for n in range(20_000)]
    tenths = [sum(i / 10 <= u < (i + 1) / 10 for u in numbers) for i in range(10)]
    assert min(numbers) > 0
    assert max(numbers) < 1
    assert all(1800 < count < 2200 for count in tenths)

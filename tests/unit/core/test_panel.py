"""A panel's scores are read strictly, and a round counts when it is complete."""

from __future__ import annotations

import pytest

from airflow_relay.core.panel import MissingScoresError, Panel, PanelOutcome, ScoreError

PANEL = Panel(critics=("voice", "ethics"), threshold=8.5)


@pytest.mark.parametrize(
    ("value", "score"), [(0, 0.0), (10, 10.0), (8.5, 8.5), ("7", 7.0), (" 9.25 ", 9.25), ("0", 0.0)]
)
def test_a_number_on_the_scale_is_a_score(value, score):
    assert PANEL.score(value) == score


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", "good", "8/10", "8.5/10", "score: 8", "8,5", "1e1", True, False, [8], {"score": 8}),
        *(float("nan"), float("inf"), -0.1, 10.1, 85, "11", "-1", "٨"),
    ],
)
def test_anything_else_is_a_failed_critic_and_no_zero(value):
    with pytest.raises(ScoreError):
        PANEL.score(value)


def test_the_error_says_what_was_found_and_what_the_scale_is():
    with pytest.raises(ScoreError, match=r"'8/10' is no score"):
        PANEL.score("8/10")
    with pytest.raises(ScoreError, match=r"The score 85 is off the scale from 0 to 10"):
        PANEL.score(85)


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        ({"voice": 8.5, "ethics": 8.5}, PanelOutcome.PASS),
        ({"voice": 10, "ethics": 7}, PanelOutcome.PASS),
        ({"voice": 10, "ethics": 6.9}, PanelOutcome.REVISE),
        ({"voice": 0, "ethics": 10}, PanelOutcome.REVISE),
    ],
)
def test_the_average_decides(scores, outcome):
    verdict = PANEL.judge(scores, round_number=2)
    assert verdict.outcome is outcome
    assert verdict.reason.startswith("Round 2 of 3: the average of ")


def test_a_round_with_partial_results_decides_nothing_and_names_the_missing():
    assert PANEL.missing({"voice": 10}) == ("ethics",)
    with pytest.raises(MissingScoresError, match="ethics"):
        PANEL.judge({"voice": 10}, round_number=1)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"critics": ()}, "critics"),
        ({"critics": ("voice", "voice")}, "critics"),
        ({"threshold": 11}, "threshold"),
        ({"threshold": -1}, "threshold"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_by_field(wrong, field):
    with pytest.raises(ValueError, match=field):
        Panel(**{"critics": ("voice",), "threshold": 8, **wrong})

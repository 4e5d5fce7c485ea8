"""The Variable `relay_rules`: what is wrong is named and replaced, never raised."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from airflow_relay.core.rules import RecoveryRules, RuleSet, parse_rules

DEFAULTS = RuleSet()


def test_the_defaults_are_those_of_the_design():
    rules = DEFAULTS.of("content")
    assert rules.stale == timedelta(hours=2)
    assert rules.attempts_per_day == 3
    assert rules.cooldown == timedelta(hours=2)
    assert rules.dry_run is False
    assert rules.exclude == frozenset()
    assert DEFAULTS.refires_per_sweep == 50


@pytest.mark.parametrize("source", [None, "", "  \n", "{}", {}])
def test_without_a_variable_all_defaults_hold_and_nothing_is_reported(source):
    assert parse_rules(source) == (DEFAULTS, ())


@pytest.mark.parametrize("source", ["{bad", "null", "[1]", '"x"', "3", "{" * 100_000])
def test_a_text_that_is_no_object_is_reported_and_all_defaults_hold(source):
    rules, problems = parse_rules(source)
    assert rules == DEFAULTS
    assert len(problems) == 1
    assert "relay_rules" in problems[0]


def test_valid_values_are_taken():
    rules, problems = parse_rules(
        '{"stale_hours": 1.5, "attempts_per_day": 0, "cooldown_hours": 0, "refires_per_sweep": 7,'
        ' "dry_run": true, "exclude": ["a"]}'
    )
    assert problems == ()
    assert rules.refires_per_sweep == 7
    assert rules.of("any") == RecoveryRules(
        stale=timedelta(minutes=90),
        attempts_per_day=0,
        cooldown=timedelta(0),
        dry_run=True,
        exclude=frozenset({"a"}),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stale_hours", "2"),
        ("stale_hours", 0),
        ("stale_hours", float("nan")),
        ("stale_hours", float("inf")),
        ("stale_hours", 1e9),
        ("stale_hours", None),
        ("attempts_per_day", -1),
        ("attempts_per_day", 2.5),
        ("attempts_per_day", True),
        ("cooldown_hours", -0.5),
        ("cooldown_hours", [2]),
        ("refires_per_sweep", "many"),
        ("dry_run", 1),
        ("dry_run", "false"),
        ("exclude", "a"),
        ("exclude", ["a", 2]),
    ],
)
def test_an_invalid_value_is_reported_by_name_and_only_it_falls_back(name, value):
    others = {"attempts_per_day": 5} if name != "attempts_per_day" else {"cooldown_hours": 3}
    rules, problems = parse_rules(json.dumps({**others, name: value}))
    assert len(problems) == 1
    assert f"'{name}'" in problems[0]
    assert rules == parse_rules(others)[0]


def test_an_unknown_rule_is_reported_with_what_was_meant():
    rules, problems = parse_rules('{"cooldwn_hours": 9}')
    assert rules == DEFAULTS
    assert problems == ("relay_rules: there is no rule 'cooldwn_hours'. Do you mean 'cooldown_hours'?",)


def test_a_pipeline_overrides_what_it_names_and_keeps_the_rest():
    rules, problems = parse_rules({"attempts_per_day": 5, "pipelines": {"news": {"cooldown_hours": 1}}})
    assert problems == ()
    assert rules.of("news").attempts_per_day == 5
    assert rules.of("news").cooldown == timedelta(hours=1)
    assert rules.of("content").cooldown == timedelta(hours=2)


def test_an_invalid_override_falls_back_to_the_value_for_all_pipelines():
    rules, problems = parse_rules({"attempts_per_day": 5, "pipelines": {"news": {"attempts_per_day": "x"}}})
    assert rules.of("news").attempts_per_day == 5
    assert "'pipelines.news.attempts_per_day'" in problems[0]


def test_the_cap_on_refires_cannot_be_overridden_per_pipeline():
    rules, problems = parse_rules({"pipelines": {"news": {"refires_per_sweep": 1}}})
    assert rules.refires_per_sweep == 50
    assert "whole sweep" in problems[0]


@pytest.mark.parametrize("pipelines", [3, [1], {"news": 3}])
def test_overrides_that_are_no_objects_are_ignored_and_reported(pipelines):
    rules, problems = parse_rules({"pipelines": pipelines})
    assert rules.of("news") == DEFAULTS.default
    assert len(problems) == 1


def test_an_override_for_a_pipeline_that_does_not_exist_is_reported():
    _, problems = parse_rules({"pipelines": {"contnet": {}}}, known_pipelines=["content", "news"])
    assert problems == (
        "relay_rules: 'pipelines.contnet': there is no such pipeline. Do you mean 'content'?",
    )


def test_dag_parameters_reach_every_pipeline():
    source = {"exclude": ["a"], "pipelines": {"news": {"dry_run": False, "exclude": ["b"]}}}
    rules, _ = parse_rules(source, dry_run=True, exclude=["c"])
    assert rules.of("news").dry_run
    assert rules.of("content").dry_run
    assert rules.of("news").exclude == {"b", "c"}
    assert rules.of("content").exclude == {"a", "c"}


def test_the_rules_go_through_xcom_in_the_shape_of_the_variable():
    source = {"stale_hours": 0.1, "exclude": ["b", "a"], "pipelines": {"news": {"attempts_per_day": 1}}}
    rules, _ = parse_rules(source)
    assert parse_rules(json.dumps(rules.to_json())) == (rules, ())

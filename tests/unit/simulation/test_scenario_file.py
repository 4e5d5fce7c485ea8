"""Scenario files: the shipped ones are complete, and what is wrong in one is told with line and field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from airflow_relay.simulation.report.figures import inputs
from airflow_relay.simulation.scenario_file import ScenarioFileError, load, parse, shipped

GOOD = """\
name: demo
title: a demo
pipelines:
  demo:
    arrivals: {per_intake: 1}
    stages:
      - name: first
        to: second
        schedule: "0 8 * * *"
        minutes: 10
      - name: second
        minutes: {uniform: [5, 9]}
models:
  - name: relay
    kind: relay
    title: Relay
"""


def problem(text: str) -> str:
    with pytest.raises(ScenarioFileError) as caught:
        parse(text, "demo.yaml")
    return str(caught.value)


def test_the_shipped_scenarios_can_be_read():
    assert shipped() == ["bad_day", "content", "doom_spiral", "newsroom", "overnight"]
    for name in shipped():
        assert load(name).name == name


@pytest.mark.parametrize("name", ["bad_day", "content", "doom_spiral", "newsroom", "overnight"])
def test_every_number_of_a_shipped_scenario_has_a_source_or_is_called_an_assumption(name):
    without = [i for i in inputs(load(name)) if i.origin == "given by the user"]
    assert not without


def test_a_good_file_is_read():
    scenario = parse(GOOD)
    assert scenario.pipelines["demo"].stages[1].minutes.uniform == (5, 9)
    assert scenario.pipelines["demo"].pipeline("demo").rank("second") == 100


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "        minutes: 10",
            "        minuts: 10",
            "demo.yaml:10: pipelines.demo.stages.0.minuts: there is no",
        ),
        ("[5, 9]", "[9, 5]", "demo.yaml:12: pipelines.demo.stages.1.minutes: uniform: [9.0, 5.0] must be"),
        ("kind: relay", "kind: relai", "demo.yaml:15: models.0.kind: "),
        (
            "kind: relay",
            "kind: cron",
            "demo.yaml:14: models.0.schedules: model 'relay': the entry stage 'first'",
        ),
        ("kind: relay", "kind: polling", "demo.yaml:15: models.0.kind: model 'relay': kind 'polling' needs"),
        ("to: second", "to: third", "demo.yaml:6: pipelines.demo.stages: "),
        ('"0 8 * * *"', '"0 8 * *"', "demo.yaml:9: pipelines.demo.stages.0.schedule: '0 8 * *' is no cron"),
        ("title: a demo\n", "", "demo.yaml:1: title: is missing"),
        ("        minutes: 10\n", "", "stage 'first': give either minutes or calls"),
        (
            "minutes: 10",
            "minutes: -10",
            "demo.yaml:10: pipelines.demo.stages.0.minutes: must not be negative",
        ),
        ("kind: relay", "kind: relay\n    rules: {stale_hour: 1}", "there is no rule 'stale_hour'"),
        (
            "kind: relay",
            "kind: relay\n    limits: {demo.frist: 1}",
            "models.0.limits: model 'relay': no stage needs the capacity key 'demo.frist'. Did you mean",
        ),
        ("minutes: 10", "minutes: ten", "stages.0.minutes: 'ten' is no number: write one, or a shape"),
        ("minutes: 10", "minutes: [5, 9]", "stages.0.minutes: [5, 9] is no number: write one, or a shape"),
        ("minutes: 10", "minutes: 10\n        limit: yes", "demo.yaml:11: pipelines.demo.stages.0.limit: "),
        ("minutes: 10", "minutes: 10\n        minutes: 20", "demo.yaml:11: minutes: is given twice"),
        ("per_intake: 1", "per_day: 0", "arrivals.per_day: must be above 0 and at most 1,000,000"),
        ("per_intake: 1", "per_day: 1000000000", "arrivals.per_day: must be above 0 and at most 1,000,000"),
        (
            "to: second",
            'to: "@gone"',
            "demo.yaml:8: pipelines.demo.stages.0.to: '@gone' is no end: use @done",
        ),
        ("stages:", "timezone: Mars/Olympus\n    stages:", "demo.timezone: 'Mars/Olympus' is no timezone"),
        ("minutes: 10", 'minutes: 10\n        window: ["9", "17:00"]', "'9' is no time of day: write HH:MM"),
        (
            "kind: relay",
            "kind: relay\n    poll_minutes: 0",
            "models.0.poll_minutes: model 'relay': poll_interval: ",
        ),
        (
            "kind: relay",
            "kind: relay\n    first_poll_hours: 20",
            "models.0.first_poll_hours: model 'relay': first_poll: 20:00:00 lies after the ceiling",
        ),
    ],
)
def test_what_is_wrong_is_told_with_line_and_field(old, new, told):
    assert told in problem(GOOD.replace(old, new))


def test_a_misspelt_field_gets_a_suggestion():
    assert "did you mean 'minutes'?" in problem(GOOD.replace("minutes: 10", "minuts: 10"))


def test_an_end_may_be_written_as_in_a_declaration():
    stages = parse(GOOD.replace("to: second", "to: second\n        after_max_visits: DISCARD")).pipelines[
        "demo"
    ]
    assert stages.stages[0].after_max_visits == "@discarded"


def test_all_problems_are_told_at_once():
    text = GOOD.replace("kind: relay", "kind: relai").replace("minutes: 10", "minutes: -10")
    assert len(problem(text).splitlines()) == 2


def test_broken_yaml_is_told_with_its_line():
    assert problem(GOOD.replace("title: a demo", "title: [a")).startswith("demo.yaml:3: no valid YAML")


def test_a_list_is_no_scenario():
    assert problem("- a\n") == "demo.yaml:1: a scenario is a table of names and values"


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(ScenarioFileError, match=r"no such file.*bad_day, content"):
        load("contnt")


def test_a_file_may_extend_a_shipped_scenario(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: overnight\nname: mine\ndays: 7\n")
    mine = load(str(path))
    assert (mine.name, mine.days) == ("mine", 7)
    assert mine.overnight == load("overnight").overnight


def test_extending_something_unknown_is_refused():
    assert "'nothing' is none of bad_day" in problem("extends: nothing\n" + GOOD)


def test_the_documentations_example_is_a_good_file():
    page = (Path(__file__).resolve().parents[3] / "docs" / "simulation.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert [m.name for m in parse(example).models] == ["today", "wider", "cron"]


def test_the_shipped_files_are_plain_yaml():
    for name in shipped():
        assert yaml.safe_load(yaml.safe_dump(load(name).model_dump(mode="json")))["name"] == name

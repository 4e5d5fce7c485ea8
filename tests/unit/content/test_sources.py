from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from content.briefs import read_briefs
from content.citations import verify_citation
from content.docstrings import docstring_passages, module_passages
from content.reference import (
    CONFIG_PATH,
    METRICS_PATH,
    metric_at,
    metric_passages,
    metrics,
    setting_at,
    setting_passages,
    settings,
)
from content.settings import content_settings
from content.sources import find_sources

BRIEFS = read_briefs(content_settings().briefs)


def lines_that_are_not_there(passages):
    return [
        (passage.id, line)
        for passage in passages
        for offset, line in enumerate(passage.text.split("\n"))
        if line.strip()
        and not verify_citation(passage.path, passage.line + offset, passage.line + offset, line)
    ]


def test_every_line_of_every_setting_and_metric_stands_where_its_passage_says():
    passages = [*setting_passages(), *metric_passages()]
    assert len(passages) > 400
    assert lines_that_are_not_there(passages) == []


def test_every_line_of_every_docstring_passage_stands_where_it_says():
    passages = list(docstring_passages(["deferrable", "heartbeat"]))
    assert len(passages) > 300
    assert lines_that_are_not_there(passages) == []


def test_a_setting_comes_with_its_default_its_line_and_its_variable():
    setting = next(s for s in settings() if s.name == "[scheduler] task_queued_timeout")
    assert float(setting.default) == 600
    assert setting.variable == "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT"
    assert setting.version_added == "2.6.0"
    assert verify_citation(CONFIG_PATH, setting.default_line, setting.default_line, setting.default_quote)
    assert setting_at(CONFIG_PATH, setting.description_line) == setting


def test_the_default_of_every_setting_stands_in_its_line():
    missing = [
        s.name
        for s in settings()
        if not verify_citation(CONFIG_PATH, s.default_line, s.default_line, s.default_quote)
    ]
    assert missing == []


def test_lines_belong_to_at_most_one_setting_or_metric():
    for entries in (settings(), metrics()):
        for before, after in itertools.pairwise(entries):
            assert before.line_start <= before.line_end < after.line_start


def test_a_metric_is_found_by_its_line_and_has_no_yaml_marks():
    metric = next(m for m in metrics() if m.name == "resumable_job.reconnect_attempt")
    assert metric_at(METRICS_PATH, metric.passage.line) == metric
    assert metric.type == "counter"
    assert metric.passage.text.startswith("Number of times")
    assert metric.passage.text.endswith("tagging.")


@pytest.mark.parametrize("brief", BRIEFS, ids=lambda b: b.key)
def test_each_brief_finds_sources_within_the_bound_and_about_its_terms(brief):
    sources = find_sources(brief.question, brief.terms, limit=10, max_characters=3000)
    assert 5 <= len(sources) <= 10
    assert sum(len(source.text) for source in sources) <= 3000
    assert len({source.id for source in sources}) == len(sources)
    titles = " ".join(source.title for source in sources)
    assert len([term for term in brief.terms if term.split()[-1] in titles]) >= 5


def test_what_a_term_names_comes_before_what_only_shares_words():
    sources = find_sources("How many tasks run at the same time?", ["[core] parallelism", "pool slots"])
    assert sources[0].title in {"[core] parallelism", "BaseOperator(pool_slots)"}
    assert {"[core] parallelism", "BaseOperator(pool_slots)"} <= {source.title for source in sources}


def test_the_same_question_finds_the_same_sources():
    brief = BRIEFS[0]
    assert find_sources(brief.question, brief.terms) == find_sources(brief.question, brief.terms)


def test_a_question_about_nothing_in_airflow_finds_sources_only_of_installed_packages():
    for source in find_sources("Who painted the ceiling of the chapel?", ["fresco"]):
        assert source.path.startswith("apache-airflow")


def test_finding_sources_imports_nothing_of_airflow(include):
    code = (
        "import sys; from content.sources import find_sources;"
        "assert find_sources('How does a person approve?', ['HITLOperator']);"
        "print([m for m in sys.modules if m.split('.')[0] == 'airflow'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(include)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


SOURCE = '''
"""Module text, long enough to be worth a passage of its own."""

class Thing:
    """
    One thing that is described in a first paragraph.

    A second paragraph with an example::

        Thing(size=3)

    and more words behind the example.

    :param size: how large the thing is, in metres, a float
        that must not be negative
    :param str other: what else there is to say about this thing
    :return: nothing at all worth quoting in any page here
    """

    def _hidden(self):
        """This is private and must not be quoted anywhere."""
'''


def test_docstrings_are_cut_into_prose_and_parameters_without_examples():
    passages = {p.title: p for p in module_passages("apache-airflow-core/airflow/thing.py", SOURCE)}
    assert set(passages) == {"thing", "Thing", "Thing(size)", "Thing(other)"}
    lines = SOURCE.splitlines()
    assert passages["Thing(size)"].text.split("\n")[0] in lines[passages["Thing(size)"].line - 1]
    assert "must not be negative" in passages["Thing(size)"].text
    assert passages["Thing"].text.startswith("One thing")
    assert "size=3" not in passages["Thing"].text
    assert "more words behind" in passages["Thing"].text

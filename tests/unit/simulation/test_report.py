"""The command and its answers: table, JSON, a page that needs nothing from elsewhere, and the chapter."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import pytest

from airflow_relay.simulation.command import main
from airflow_relay.simulation.experiment import Estimate, simulate
from airflow_relay.simulation.report import chapter, page, tables
from airflow_relay.simulation.report.figures import inputs, number, spread
from airflow_relay.simulation.report.svg import Axis
from airflow_relay.simulation.scenario_file import load, shipped

VOID = {"meta", "br", "i"}


class Checker(HTMLParser):
    """Tags must close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)


@pytest.fixture(scope="module")
def result():
    return simulate(load("content"), days=4, seeds=2)


def test_the_page_is_well_formed_and_loads_nothing(result):
    html = page.render(result, ["a note with <angle> brackets"])
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert {"svg", "rect", "polyline", "table"} <= set(checker.seen)
    addresses = set(re.findall(r"https?://[^\"' <]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not {"script", "link", "img", "iframe"} & set(checker.seen)
    assert "a note with &lt;angle&gt; brackets" in html


def test_the_page_tells_the_claims_their_inputs_and_the_documents_contradictions(result):
    html = page.render(result)
    for words in (
        "Item by item",
        "End to end",
        "Work in progress",
        "ASSUMPTION",
        "in range",
        "Read with care",
    ):
        assert words in html
    assert html.count("<svg") >= 2 + len(result.outcomes) + 1


@pytest.mark.parametrize("name", ["overnight", "newsroom", "doom_spiral"])
def test_a_page_can_be_made_of_every_scenario(name):
    checker = Checker()
    checker.feed(page.render(simulate(load(name), days=2, seeds=1)))
    assert checker.open == []


def test_the_table_has_every_model_and_every_claim(result):
    text = tables.render(result)
    for name in result.outcomes:
        assert name in text
    for claim in result.scenario.claims:
        assert claim.text in text


def test_the_results_have_every_claim_with_its_verdict_and_every_input(monkeypatch, tmp_path):
    monkeypatch.setattr(chapter, "simulate", lambda scenario, **_: simulate(scenario, days=3, seeds=1))
    page = tmp_path / "results.md"
    page.write_text(f"above\n\n{chapter.TABLE_BEGINS}\nold\n{chapter.TABLE_ENDS}\n\nbelow\n")
    assert main(["--results", str(tmp_path)]) == 0
    table, details = page.read_text(), (tmp_path / "results-twin.md").read_text()
    assert table.startswith("above\n")
    assert table.endswith("below\n")
    assert "old" not in table.split()
    for name in shipped():
        scenario = load(name)
        assert f"Scenario `{name}`" in details
        for claim in scenario.claims:
            assert claim.text in table
            assert claim.quote in table
        for finding in scenario.findings:
            assert finding.what in details
        for entry in inputs(scenario):
            assert f"| {entry.where} | {entry.value} | {entry.origin} |" in details
    rows = [line for line in (table + details).splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_results_need_a_page_with_a_place_for_the_table(capsys, tmp_path):
    assert main(["--results", str(tmp_path)]) == 2
    assert chapter.TABLE_BEGINS in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_people_wrote_below_the_mark_is_kept():
    first = chapter.with_measured("new", "")
    assert first == f"new\n{chapter.MEASURED}\n"
    assert chapter.with_measured("newer", first + "by hand\n") == f"newer\n{chapter.MEASURED}\nby hand\n"


def test_the_order_of_the_chapter_names_every_shipped_scenario():
    assert sorted(chapter.ORDER) == shipped()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567, "1 234 567"), (123.4, "123"), (5.4321, "5.43"), (0.0001, "0"), (float("nan"), "-")],
)
def test_numbers_for_people(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(5.4321, 5.26, 5.6, 5, 6), "5.43 ± 0.17"),
        (Estimate(5.4321, 5.431, 5.433, 5, 6), "5.43"),
        (Estimate(1500, 1400, 1600, 1, 1), "1 500 ± 100"),
    ],
)
def test_figures_come_with_their_confidence(estimate, text):
    assert spread(estimate) == text


def test_an_axis_has_round_ticks():
    assert Axis(0, 23.4, 0, 100).ticks(6) == [0, 5, 10, 15, 20]
    assert Axis(0, 1, 10, 110)(0.5) == 60


def command(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_json_says_everything_and_the_same_each_time(capsys):
    asked = ("content", "--days", "3", "--seeds", "2", "--seed", "5", "-o", "json")
    code, out, _ = command(capsys, *asked)
    assert code == 0
    said = json.loads(out)
    assert said["seeds"] == [5, 6]
    assert said["models"]["completion"]["figures"]["end_to_end_median"]["mean"] > 1
    assert said["claims"][0]["document"] == "6-12 hours"
    assert command(capsys, *asked)[1] == out


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_run_shows_its_progress_on_a_terminal_and_clears_it(monkeypatch):
    monkeypatch.setattr("airflow_relay.simulation.answers._LONG_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert main(["overnight", "--days", "2", "--seeds", "2"]) == 0
    shown = terminal.getvalue().split("\r")
    assert shown[1].startswith("[########......................] 1/4 runs, ")
    assert shown[4].startswith("[##############################] 4/4 runs, 0 s left")
    assert shown[5:] == ["\x1b[K"]


def test_html_is_written_to_a_file(capsys, tmp_path):
    path = tmp_path / "report.html"
    code, out, err = command(
        capsys, "overnight", "--days", "3", "--seeds", "1", "-o", "html", "--to", str(path)
    )
    assert (code, out) == (0, "")
    assert str(path) in err
    assert path.read_text().startswith("<!doctype html>")


def test_a_what_if_names_the_bottleneck(capsys):
    code, out, _ = command(capsys, "content", "--days", "3", "--seeds", "1", "--limit", "content.write=1")
    assert code == 0
    assert "changed: The bottleneck is content.write (limit 1" in out or "changed: No limit holds" in out
    assert "today: No limit holds anything up." in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["contents"], "no such file"),
        ([], "name a scenario"),
        (["content", "--limit", "x"], "KEY=NUMBER"),
        (["content", "--to", "no/such/folder/page.html"], "there is no folder no/such/folder"),
        (["content", "--pipeline", "content"], "--pipeline chooses from a history: give --from-ledger"),
        (["content", "--from-ledger"], "give either the scenario 'content' or --from-ledger"),
        (["content", "--limit", "content.writes=2"], "Did you mean 'content.write'?"),
        (["content", "--outage", "write=often"], "STAGE=TIME"),
        (["content", "--schedule", "write=0 8 * * *"], "only the entry has a schedule"),
        (["content", "--schedule", "research=8 o'clock"], "is no cron expression"),
    ],
)
def test_wrong_options_end_with_2_and_say_why_on_stderr(capsys, arguments, told):
    code, out, err = command(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_without_simpy_the_cure_is_told(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "simpy", None)
    code, _, err = command(capsys, "content")
    assert code == 2
    assert "pip install 'airflow-provider-relay[simulation]'" in err

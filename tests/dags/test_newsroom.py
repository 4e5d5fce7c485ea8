"""The newsroom's declarations: what its desks share, what yields, and where a text goes after its rounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from include.newsroom import desk
from include.newsroom.articles import Article, as_markdown, read_records, ship
from include.newsroom.pipeline import LIMITS, PANEL, PUBLICATIONS, publication, upkeep
from include.newsroom.settings import newsroom_settings
from include.newsroom.upkeep import recheck, statistics, write_statistics

from airflow_relay import PERSON, Pipeline, Stage
from airflow_relay.core.completion import Completion
from airflow_relay.core.dispatch import check_shared_keys
from airflow_relay.core.item import Item, Run, apply
from airflow_relay.core.lifecycle import completed, registered
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.core.states import ItemState, PriorityClass, RunResult, RunState
from airflow_relay.local_agent.extractive.backend import CRITIC_NAMES, JOBS
from support.pipelines import START

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("research", "draft", "critique", "qa", "ship")


@pytest.fixture(scope="module")
def dags(parse_files: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    found = parse_files(sorted((ROOT / "dags" / "newsroom").glob("*.py")))
    assert [report["error"] for report in found.values()] == [None] * 3
    return {dag_id: dag for report in found.values() for dag_id, dag in report["dags"].items()}


def test_each_publication_has_a_dag_for_each_phase_and_an_intake_of_its_own(dags: dict[str, Any]) -> None:
    for name in PUBLICATIONS:
        assert {f"{name}__{phase}" for phase in PHASES} <= set(dags)
        assert [p for p in PHASES if dags[f"{name}__{p}"]["scheduled"]] == ["research"]


def test_the_panel_is_one_mapped_task_and_a_verdict_both_guarded(dags: dict[str, Any]) -> None:
    critique = dags["news_oncall__critique"]
    assert critique["tasks"] == ["critics", "draft", "hand_off", "verdict"]
    assert critique["guarded"] == ["critics", "draft", "verdict"]


def test_the_monitor_is_a_plain_dag_on_its_own_cron(dags: dict[str, Any]) -> None:
    monitor = dags["newsroom_monitor"]
    assert monitor["scheduled"]
    assert monitor["guarded"] == []
    assert not any(tag.startswith(("relay", "stage:")) for tag in monitor["tags"])


def test_what_is_scarce_is_shared_by_all_publications() -> None:
    assert LIMITS == {"newsroom.research": 3, "newsroom.draft": 2, "newsroom.critique": 1, "agents": 4}
    for pipeline in PUBLICATIONS.values():
        held = {phase: set(pipeline.keys(phase)) & set(LIMITS) for phase in PHASES}
        assert held == {
            "research": {"newsroom.research", "agents"},
            "draft": {"newsroom.draft", "agents"},
            "critique": {"newsroom.critique", "agents"},
            "qa": set(),
            "ship": set(),
        }


def test_near_the_end_goes_first() -> None:
    for pipeline in PUBLICATIONS.values():
        ranks = [pipeline.rank(phase) for phase in PHASES]
        assert ranks == sorted(ranks)
        assert len(set(ranks)) == 5


def test_idle_work_yields_and_shares_no_limited_key() -> None:
    assert upkeep.klass is PriorityClass.P3
    assert {p.klass for p in PUBLICATIONS.values()} == {PriorityClass.P2}
    greedy = Pipeline(
        "greedy", [Stage("idle", schedule="0 7 * * *", keys=("agents",))], klass=PriorityClass.P3
    )
    with pytest.raises(PipelineError, match="agents"):
        check_shared_keys([*PUBLICATIONS.values(), greedy])


def walk(pipeline: Pipeline, outcomes: dict[str, list[str]]) -> Item:
    """Take an item through its stages; each stage ends with the next of its outcomes."""
    item, _ = registered(pipeline=pipeline, key="note", priority=0, now=START)
    while item.state is ItemState.READY:
        said = outcomes.get(item.stage)
        run = Run(
            id=1,
            item_id=0,
            pipeline=pipeline.name,
            stage=item.stage,
            visit=item.visit,
            epoch=1,
            dag_id=item.dag_id,
            run_id="run",
            ledger_id="l",
            state=RunState.OPEN,
            klass=item.klass,
            granted_at=START,
        )
        ended = Completion(RunResult.SUCCESS, said.pop(0) if said else None)
        item = apply(item, completed(item, pipeline=pipeline, run=run, completion=ended, now=START))
    return item


def test_a_note_that_passes_at_once_is_shipped() -> None:
    item = walk(PUBLICATIONS["news_oncall"], {"critique": ["pass"], "qa": ["ok"]})
    assert (item.state, item.status, item.visits["critique"]) == (ItemState.DONE, "shipped", 1)


def test_below_the_threshold_it_goes_back_to_draft_and_a_third_failure_goes_to_a_person() -> None:
    item = walk(PUBLICATIONS["news_oncall"], {"critique": ["revise"] * 3})
    assert item.state is ItemState.DEAD
    # It waits in front of its fourth draft: whoever redrives it asks for one more round.
    assert (item.stage, item.visits) == ("draft", {"research": 1, "draft": 4, "critique": 3})


def test_the_bound_is_the_panels() -> None:
    draft = publication("news_other", "0 7 * * *", "").stage("draft")
    assert (draft.max_visits, draft.after_max_visits) == (PANEL.rounds, PERSON)
    assert PANEL.threshold == 8.5
    assert set(PANEL.critics) == set(CRITIC_NAMES)


# What is sent, and what is shipped


def ask(job: str, payload: dict[str, Any]) -> Any:
    """What the embedded agent answers."""
    return JOBS[job].load()(json.loads(json.dumps(payload)))


def rounds_of(payload: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """Average score and everything known after each round, until the panel passes the text."""
    known = {"research": ask("research", desk.research_payload(payload))}
    status, rounds = "researched", []
    for _ in range(PANEL.rounds):
        job = desk.draft_job(payload, known, status=status)
        known = {**known, "draft": ask(job["job"], job["input"])}
        asked = desk.critique_payload(known)
        replies = {name: ask(f"critique/{name}", asked) for name in PANEL.critics}
        verdict = PANEL.judge({n: PANEL.score(r["score"]) for n, r in replies.items()}, round_number=1)
        feedback = [finding for reply in replies.values() for finding in reply["findings"]]
        known = {**known, "critique": {"feedback": feedback}}
        rounds.append((verdict.average, known))
        status = "critiqued"
        if verdict.average >= PANEL.threshold:
            break
    return rounds


def brief(publication: str, key: str) -> dict[str, Any]:
    found = {f["key"]: f["payload"] for f in desk.find_briefs(newsroom_settings(), publication)}
    return found[key]


def test_there_are_four_briefs_a_publication_and_some_start_from_a_manuscript() -> None:
    found = [f for name in PUBLICATIONS for f in desk.find_briefs(newsroom_settings(), name)]
    assert len(found) == 12
    assert len({f["key"] for f in found}) == 12
    assert sum(f["payload"]["manuscript"] is not None for f in found) == 4


@pytest.mark.parametrize(
    ("publication", "key"),
    [
        ("news_oncall", "queued-timeout"),
        ("news_platform", "concurrency-limits"),
        ("news_authors", "task-retries"),
        ("news_authors", "deferrable"),
    ],
)
def test_a_weak_manuscript_fails_and_its_revision_is_better(publication: str, key: str) -> None:
    (first, _), *more = rounds_of(brief(publication, key))
    assert first < PANEL.threshold
    assert more[-1][0] > first


def test_a_draft_that_comes_back_is_written_with_the_findings_of_who_sent_it_back() -> None:
    known = {
        "research": {"passages": []},
        "draft": {"draft": {"title": "t"}},
        "critique": {"feedback": ["by the critics"]},
        "qa": {"feedback": ["by the last check"]},
    }
    item = brief("news_oncall", "heartbeat-timeout")
    by_critics = desk.draft_job(item, known, status="critiqued")["input"]
    by_qa = desk.draft_job(item, known, status="checked")["input"]
    assert (by_critics["feedback"], by_qa["feedback"]) == (["by the critics"], ["by the last check"])
    assert by_critics["draft"] == {"title": "t"}


def test_each_job_has_its_instructions() -> None:
    for job in (*PHASES[:2], "improve", "qa", "ship"):
        assert desk.instructions(job)
    texts = {desk.instructions(f"critique/{critic}") for critic in PANEL.critics}
    assert len(texts) == 6
    with pytest.raises(ValueError, match="no instructions for job 'gossip'"):
        desk.instructions("gossip")


@pytest.fixture(scope="module")
def article() -> Article:
    *_, (average, known) = rounds_of(brief("news_oncall", "heartbeat-timeout"))
    polished = ask("ship", desk.ship_payload(known))
    return Article(
        publication="news_oncall",
        key="heartbeat-timeout",
        draft=desk.shipped_draft(known, polished),
        description=polished["meta_description"],
        scores=dict.fromkeys(PANEL.critics, 9.0),
        average=average,
        rounds=1,
        shipped_at=START,
    )


def test_an_article_cites_the_words_of_the_installed_documentation(article: Article) -> None:
    assert article.draft["references"]
    assert recheck([article.record()]) == []
    assert "## Sources" in as_markdown(article)


def test_a_citation_that_is_no_longer_true_is_found(article: Article) -> None:
    record = json.loads(json.dumps(article.record()))
    record["draft"]["references"][0]["quote"] = "what the package never said"
    (stale,) = recheck([record])
    assert stale["key"] == "heartbeat-timeout"


def test_shipped_articles_are_counted(article: Article, tmp_path: Path) -> None:
    assert ship(article, tmp_path).read_text() == as_markdown(article)
    assert ship(article, tmp_path).exists(), "shipping it again replaces it"
    found = write_statistics(tmp_path, [], now=START)
    assert found["publications"]["news_oncall"]["articles"] == 1
    assert statistics(read_records(tmp_path)) == found["publications"]

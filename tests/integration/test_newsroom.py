"""The newsroom on a real Airflow: its desks keep their limits, and a panel pays for each critic once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from include.newsroom.pipeline import LIMITS, PANEL, PUBLICATIONS

from airflow_instance import AirflowInstance
from airflow_relay.core.item import Item, Run
from airflow_relay.core.states import TERMINAL, ItemState, RunResult
from airflow_relay.ledger import items, jobs, results, runs, schema
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.jobs import JobPhase
from airflow_relay.ledger.store import Ledger
from integration.relay_on_airflow import TICK_DAG, RelayOnAirflow
from support.agent_server import AgentServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PANELS = ("panel__gather", "panel__critique", "strict__gather", "strict__critique")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess(latency="1:4", workers=4) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, metadata_server: str | None, server: AgentServerProcess
) -> Iterator[AirflowInstance]:
    """An Airflow with the newsroom of the example deployment; its briefs are the deployment's own."""
    instance = AirflowInstance(
        tmp_path_factory.mktemp("newsroom") / "home",
        [ROOT / "dags" / "newsroom", ROOT / "dags" / "operations", Path(__file__).parent / "panel_folder"],
        postgres_server=metadata_server,
        connections={"relay_agent": server.url},
        dags_paused=True,
    )
    with instance:
        stages = [p.dag_id(s.name) for p in PUBLICATIONS.values() for s in p.stages]
        own = [*stages, *PANELS, TICK_DAG, "relay__recovery"]
        instance.wait_for_dags(*own, timeout=180)
        for dag_id in own:
            instance.api.unpause(dag_id)
        yield instance


@pytest.fixture(scope="module")
def ledger(airflow: AirflowInstance) -> Iterator[Ledger]:
    relay = RelayOnAirflow(airflow, "news_oncall", "research")
    yield relay.ledger
    relay.close()


@pytest.fixture(scope="module")
def shipped(airflow: AirflowInstance, ledger: Ledger) -> list[Item]:
    """One intake of each publication, and then nothing but completions: all 12 items at their end."""
    for publication in PUBLICATIONS.values():
        airflow.api.trigger_dag(publication.dag_id("research"))

    def finished() -> list[Item] | None:
        with ledger.read() as tx:
            found = [i for i in items.listing(tx) if i.pipeline in PUBLICATIONS]
        return found if len(found) == 12 and all(i.state in TERMINAL for i in found) else None

    return airflow.wait(finished, what="12 items at their end", timeout=1500, interval=1)


@pytest.fixture(scope="module")
def all_runs(ledger: Ledger, shipped: list[Item]) -> list[Run]:
    with ledger.read() as tx:
        return [run for item in shipped for run in runs.of_item(tx, item.id)]


def most_at_once(spans: list[tuple[datetime, datetime]]) -> int:
    """The largest number of spans that overlap; an end at the time of a beginning comes first."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    level = highest = 0
    for _, step in steps:
        level += step
        highest = max(highest, level)
    return highest


def holders(all_runs: list[Run], key: str) -> list[tuple[datetime, datetime]]:
    """From grant to hand-off, deferred time included, of the runs of all publications that held the key."""
    return [
        (run.granted_at, run.closed_at)
        for run in all_runs
        if run.closed_at is not None and key in PUBLICATIONS[run.pipeline].keys(run.stage)
    ]


def test_every_item_is_shipped_or_with_a_person_after_its_rounds(
    airflow: AirflowInstance, ledger: Ledger, shipped: list[Item]
) -> None:
    assert {i.state for i in shipped} <= {ItemState.DONE, ItemState.DEAD}
    rounds = Counter(i.visits.get("critique", 0) for i in shipped)
    assert max(rounds) <= PANEL.rounds
    assert sum(count for visits, count in rounds.items() if visits > 1) >= 4, "the weak manuscripts came back"
    done = [i for i in shipped if i.state is ItemState.DONE]
    assert len(done) >= 8
    with ledger.read() as tx:
        for item in done:
            found = results.latest(results.of_item(tx, item.id), ledger.objects)
            assert found["critique"]["average"] >= PANEL.threshold
            assert set(found["critique"]["scores"]) == set(PANEL.critics)
            assert Path(found["ship"]["article"]).read_text().startswith("# ")
    for item in shipped:
        if item.state is ItemState.DEAD:
            assert item.visits["critique"] == PANEL.rounds, (
                f"{item.key} went to a person before its last round"
            )
            assert item.stage == "draft", "a redrive asks for one more round"


@pytest.mark.parametrize("key", sorted(LIMITS))
def test_a_shared_desk_never_holds_more_than_its_limit_also_while_jobs_are_deferred(
    all_runs: list[Run], key: str
) -> None:
    spans = holders(all_runs, key)
    assert len(spans) >= 12
    assert most_at_once(spans) <= LIMITS[key]


def test_the_agents_own_figures_say_the_same(server: AgentServerProcess, all_runs: list[Run]) -> None:
    by_job = server.stats()["by_job"]
    assert by_job["research"]["max_active"] <= LIMITS["newsroom.research"]
    assert by_job["draft"]["max_active"] <= LIMITS["newsroom.draft"]
    for critic in PANEL.critics:
        assert by_job[f"critique/{critic}"]["max_active"] <= LIMITS["newsroom.critique"]
    critiques = sum(run.stage == "critique" and run.result is RunResult.SUCCESS for run in all_runs)
    assert by_job["critique/voice"]["created"] == critiques, "each critic was paid for once a round"


def test_the_desks_are_busy_together(all_runs: list[Run]) -> None:
    assert most_at_once(holders(all_runs, "agents")) >= 3, "phases overlap: nothing runs in turns"


# A panel of which critics time out


def start(panel: RelayOnAirflow, key: str) -> None:
    folder = Path(panel.airflow.home) / panel.pipeline
    folder.mkdir(exist_ok=True)
    (folder / f"{key}.json").write_text(json.dumps({"key": key}))
    panel.api.trigger_dag(panel.entry_dag)


def test_a_critique_that_times_out_after_four_of_six_critics_resumes_with_the_two_missing(
    airflow: AirflowInstance, ledger: Ledger, server: AgentServerProcess
) -> None:
    panel = RelayOnAirflow(airflow, "panel", "gather")
    late = ("legal_accuracy", "research_rigor")
    for critic in late:
        server.set_fault("stuck_queued", where={"job": f"critique/{critic}", "panel": "slow"})
    start(panel, "slow")
    failed = panel.wait_for("slow", ItemState.FAILED, stage="critique", timeout=300)
    assert failed.error_class == "timeout"
    assert "4 of 6 critics have finished in round 1" in str(failed.error_reason)
    assert "legal_accuracy (timeout), research_rigor (timeout)" in str(failed.error_reason)
    server.clear_faults()

    rules = {"stale_hours": 0.001, "cooldown_hours": 0}
    airflow.api.request("POST", "variables", json={"key": "relay_rules", "value": json.dumps(rules)})
    airflow.wait(lambda: refire(airflow, panel, "slow"), what="the sweep to refire", timeout=300, interval=5)
    done = panel.wait_for("slow", ItemState.DONE, timeout=300)
    assert done.visits == {"gather": 1, "critique": 1}
    with ledger.read() as tx:
        asked = jobs.of_item(tx, done.id)
    asked_times = Counter(PANEL.critics[job.map_index] for job in asked)
    assert asked_times == {critic: 2 if critic in late else 1 for critic in PANEL.critics}
    keys = {job.key for job in asked if job.phase is JobPhase.SUCCEEDED}
    paid = Counter(job["job"] for job in server.jobs() if job["idempotency_key"] in keys)
    assert paid == {f"critique/{critic}": 1 for critic in PANEL.critics}
    assert set(panel.results("slow")["critique"]["scores"]) == set(PANEL.critics)


def refire(airflow: AirflowInstance, panel: RelayOnAirflow, key: str) -> bool:
    """One sweep; whether it has taken the item up."""
    run_id = airflow.api.trigger_dag("relay__recovery")
    airflow.wait_for_run("relay__recovery", run_id)
    item = panel.item(key)
    return item is not None and item.attempts == 1


def test_a_score_off_the_scale_is_a_failed_critic_and_its_reply_is_not_kept(
    airflow: AirflowInstance, ledger: Ledger
) -> None:
    panel = RelayOnAirflow(airflow, "strict", "gather")
    start(panel, "good")
    failed = panel.wait_for("good", ItemState.FAILED, stage="critique", timeout=300)
    assert "its score could not be read" in str(failed.error_reason)
    with ledger.read() as tx:
        asked = jobs.of_item(tx, failed.id)
    assert [job.phase for job in asked] == [JobPhase.SUCCEEDED] * 6
    assert any(job.dropped_at is not None for job in asked)
    assert "critique" not in panel.results("good"), "a round with a missing score decides nothing"


def test_the_ledger_is_left_without_a_held_slot(
    ledger: Ledger, airflow: AirflowInstance, shipped: list[Item]
) -> None:
    with ledger.read() as tx:
        held = tx.conn.execute(schema.slots.select()).all()
    assert held == []
    engine_for(ledger.url).dispose()

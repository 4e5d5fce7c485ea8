"""History as the ledger has it: closed runs, results, tokens and registrations; the fit over them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_relay.core.completion import Completion, StageShape
from airflow_relay.core.pipeline import Pipeline, Stage
from airflow_relay.core.snapshot import Conditions
from airflow_relay.core.states import RunResult
from airflow_relay.ledger import declarations, history, items, runs
from airflow_relay.ledger.store import Ledger
from airflow_relay.simulation import from_ledger
from airflow_relay.simulation.history import HistoryError

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
PIPELINE = Pipeline("p", [Stage("a", to="b", schedule="@hourly"), Stage("b", limit=2)])
SHAPE = StageShape(work=("work",), ends=("work",))


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(f"sqlite:///{tmp_path}/ledger.db", None)
    made.init()
    return made


def work(ledger: Ledger, *, number: int, fails: int = 0) -> None:
    """Items through both stages: granted at once, started after 5 s, done after 10 minutes."""
    _, granted = ledger.intake(PIPELINE, [f"k{n}" for n in range(number)], Conditions(), NOW)
    at = NOW
    while granted:
        run = granted.pop(0)
        with ledger.write() as tx:
            item = items.by_id(tx, run.item_id)
            started = run.granted_at + timedelta(seconds=5)
            runs.start(tx, item, run, pipeline=PIPELINE, shape=SHAPE, now=started)
        at = max(at, started + timedelta(minutes=10))
        failed = run.stage == "b" and fails > 0
        fails -= failed
        result = (
            Completion(RunResult.FAILED, error_class="overloaded")
            if failed
            else Completion(RunResult.SUCCESS)
        )
        handed = ledger.hand_off(
            run,
            pipeline=PIPELINE,
            completion=result,
            stored=None,
            clear_number=0,
            conditions=Conditions(),
            now=at,
        )
        granted += handed.grants


def test_closed_runs_and_registrations_are_read(ledger):
    work(ledger, number=6, fails=2)
    with ledger.read() as tx:
        found = list(history.ended_runs(tx, since=NOW))
        came = history.registrations(tx, since=NOW)
        assert history.first_registration(tx) == NOW
        assert list(history.ended_runs(tx, since=NOW + timedelta(days=1))) == []
        assert set(declarations.load_all(tx)) == {"p"}
    assert len(found) == 12
    assert {r.result for r in found} == {RunResult.SUCCESS, RunResult.FAILED}
    assert [r.error_class for r in found].count("overloaded") == 2
    assert all((r.started_at - r.granted_at).total_seconds() == 5 for r in found)
    assert [r.closed_at for r in found] == sorted(r.closed_at for r in found)
    assert [(c.pipeline, c.items, c.intakes) for c in came] == [("p", 6, 1)]


def test_an_empty_ledger_has_no_first_registration(ledger):
    with ledger.read() as tx:
        assert history.first_registration(tx) is None


def test_the_deployments_ledger_is_fitted(ledger, monkeypatch):
    work(ledger, number=6, fails=2)
    monkeypatch.setattr(from_ledger, "open_ledger", lambda: ledger)
    monkeypatch.setattr(from_ledger, "read_conditions", lambda *_: Conditions(limits={"p.b": 1}))
    monkeypatch.setattr(from_ledger, "utcnow", lambda: NOW + timedelta(hours=12))
    found = from_ledger.fit_history(days=7, pipeline=None)
    spec = found.scenario.pipelines["p"]
    assert spec.arrivals.per_day.value == 12
    assert spec.stages[1].failure_rate.value == pytest.approx(2 / 6)
    assert found.scenario.models[0].limits == {"p.b": 1}
    assert found.scenario.latency.start_seconds.sample == (5,) * 12
    assert any("only 6 runs" in note for note in found.notes)


def test_an_empty_ledger_is_told(ledger, monkeypatch):
    monkeypatch.setattr(from_ledger, "open_ledger", lambda: ledger)
    monkeypatch.setattr(from_ledger, "read_conditions", lambda *_: Conditions())
    with pytest.raises(HistoryError, match="no items"):
        from_ledger.fit_history(days=7, pipeline=None)

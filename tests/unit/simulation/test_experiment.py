"""Many seeds: the same figures, whichever processes they come from."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.scenarios import chain

from airflow_relay.simulation import experiment
from airflow_relay.simulation.experiment import simulate


def figures_of_four_seeds() -> dict[str, Any]:
    scenario = chain(first={"failure_rate": 0.3})
    steps: list[None] = []
    found = simulate(scenario, days=3, seeds=4, progress=lambda: steps.append(None)).outcomes["relay"]
    assert len(steps) == 4
    return {
        "figures": {name: repr(figure) for name, figure in found.figures.items()},  # a nan equals none
        "busy": found.stage_busy,
        "waiting": found.waiting,
        "in use": found.in_use,
        "end to end": (found.end_to_end.count, found.end_to_end.total, found.end_to_end.high),
        "example": found.example.runs,
    }


def test_seeds_that_run_in_other_processes_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_cores", lambda: 1)
    alone = figures_of_four_seeds()
    monkeypatch.setattr(experiment, "_cores", lambda: 2)
    monkeypatch.setattr(experiment, "_WORTH_PROCESSES_S", 0.0)
    pools = []
    pool = experiment.ProcessPoolExecutor
    monkeypatch.setattr(
        experiment, "ProcessPoolExecutor", lambda *a, **k: (pools.append(a), pool(*a, **k))[1]
    )
    assert figures_of_four_seeds() == alone
    assert pools == [(2,)]

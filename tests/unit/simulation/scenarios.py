"""Small scenarios with times that can be checked by hand."""

from __future__ import annotations

from typing import Any

from airflow_relay.simulation.experiment import simulate_once
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.relay_model import RelayModel
from airflow_relay.simulation.scenario import Scenario

CHAIN: dict[str, Any] = {
    "name": "chain",
    "title": "two stages",
    "pipelines": {
        "chain": {
            "arrivals": {"per_intake": 2},
            "stages": [
                {"name": "first", "to": "second", "schedule": "0 8 * * *", "minutes": 30},
                {"name": "second", "minutes": 60, "tokens": 100},
            ],
        }
    },
    "models": [{"name": "relay", "kind": "relay", "title": "Relay"}],
}


def chain(
    *, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None, **changes: Any
) -> Scenario:
    """The two-stage chain with changes to its stages (``first``, ``second``) and its tables."""
    stages = [
        {**stage, **(more or {})}
        for stage, more in zip(CHAIN["pipelines"]["chain"]["stages"], (first, second), strict=True)
    ]
    arrivals = changes.pop("arrivals", CHAIN["pipelines"]["chain"]["arrivals"])
    pipeline = {**CHAIN["pipelines"]["chain"], "stages": stages, "arrivals": arrivals}
    return Scenario.model_validate({**CHAIN, "pipelines": {"chain": pipeline}, **changes})


def relay(**options: Any) -> list[dict[str, Any]]:
    """``models`` with one Relay model."""
    return [{"name": "relay", "kind": "relay", "title": "Relay", **options}]


def run(scenario: Scenario, *, days: int = 3, seed: int = 1) -> Recorder:
    """The first model."""
    return simulate_once(scenario, scenario.models[0], days=days, seed=seed)


def twin(scenario: Scenario, *, days: int = 3, seed: int = 1) -> RelayModel:
    """Relay's model, to look inside after its run."""
    made = RelayModel(scenario, scenario.models[0], days=days, seed=seed)
    made.run()
    return made

from __future__ import annotations

import json

import pytest
from tests.support.agent_texts import QUESTION, settings_sources

from airflow_relay.local_agent.extractive.backend import ExtractiveBackend


@pytest.fixture(scope="session")
def do():
    """Run a job as the server does: ``do("write", question=…, passages=…)`` gives the output's data."""
    backend = ExtractiveBackend()

    def run(job, **payload):
        return backend.run(job, backend.prepare(job, json.dumps(payload)), {}).data

    return run


@pytest.fixture(scope="session")
def sources():
    return list(settings_sources())


@pytest.fixture(scope="session")
def researched(do, sources):
    return do("research", question=QUESTION, brief="max_active_runs, parallelism, pools", sources=sources)


@pytest.fixture(scope="session")
def draft(do, researched):
    return do(
        "write", question=QUESTION, title="How Airflow limits parallel runs", passages=researched["passages"]
    )


@pytest.fixture(scope="session")
def clean(do, researched):
    """A draft that passes its review: long sentences were sent back once."""
    return do(
        "write", question=QUESTION, passages=researched["passages"], feedback=[{"code": "long_sentence"}]
    )

"""The ledger's database goes away while agent jobs are submitted, run and end: nothing is paid twice.

``RELAY_TEST_OUTAGE_SECONDS`` sets how long it is away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from airflow_instance import AirflowInstance
from airflow_relay.core.states import ItemState
from airflow_relay.ledger.engine import engine_for
from airflow_relay.ledger.migrate import upgrade
from databases import create_database, drop_database
from integration.relay_on_airflow import RelayOnAirflow
from support.agent_items import CONNECTION, AgentItems
from support.agent_server import AgentServerProcess
from support.tcp_proxy import TcpProxy

DAGS_FOLDER = Path(__file__).parent.parent / "integration" / "dags_folder"
OUTAGE = float(os.environ.get("RELAY_TEST_OUTAGE_SECONDS", "30"))
ITEMS = 12
EARLY = 8
"""How many jobs are submitted when the ledger goes away; the others are on their way then."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 + OUTAGE)]


@pytest.fixture(scope="module")
def ledger_url(postgres_server: str) -> Iterator[str]:
    """A ledger on PostgreSQL; this is the way to it that stays."""
    url = create_database(postgres_server, prefix="relay_outage")
    upgrade(url)
    yield url
    engine_for(url).dispose()
    drop_database(postgres_server, url)


@pytest.fixture(scope="module")
def way(ledger_url: str) -> Iterator[TcpProxy]:
    """Airflow's way to the ledger."""
    parsed = make_url(ledger_url)
    with TcpProxy(parsed.host or "127.0.0.1", parsed.port or 5432) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServerProcess]:
    with AgentServerProcess() as running:
        yield running


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, server, postgres_server, ledger_url, way) -> Iterator[AirflowInstance]:
    through = make_url(ledger_url).set(drivername="postgresql", host="127.0.0.1", port=way.port)
    instance = AirflowInstance(
        tmp_path_factory.mktemp("airflow") / "home",
        [DAGS_FOLDER],
        postgres_server=postgres_server,
        connections={
            CONNECTION: server.url,
            "relay_ledger": through.render_as_string(hide_password=False),
        },
    )
    with instance:
        instance.wait_for_dags("agents__ask")
        yield instance


def test_while_the_ledger_is_away_no_paid_work_is_repeated(airflow, server, ledger_url, way):
    relay = RelayOnAirflow(airflow, "agents", "ask", ledger_url=ledger_url)
    agents = AgentItems(relay, server)
    keys = sorted(relay.new_key("outage") for _ in range(ITEMS))  # as the intake finds them
    # Those submitted first end all through the outage and behind it; those still to come are short.
    seconds = [(OUTAGE + 20) * (n + 1) / EARLY for n in range(EARLY)] + [5] * (ITEMS - EARLY)
    faults = [f"slow:seconds={s}" for s in seconds]
    agents.start_all({key: {"fault": fault} for key, fault in zip(keys, faults, strict=True)})
    airflow.wait(
        lambda: server.stats()["jobs_created"] >= EARLY, what="jobs to run", timeout=180, interval=0.02
    )
    way.down()
    back_at = time.monotonic() + OUTAGE
    late = [relay.start("late") for _ in range(2)]  # by hand, as a person would meanwhile
    airflow.wait(lambda: time.monotonic() >= back_at, what="the outage to pass", timeout=OUTAGE + 30)
    during = server.stats()["jobs_created"]
    way.up()
    everything = [*keys, *late]
    airflow.wait(
        lambda: not agents.unfinished(everything), what="all items to be done", timeout=900, interval=1
    )
    for key in everything:
        agents.assert_paid_once(key)
    agents.assert_books_agree()
    assert server.stats()["jobs_created"] == len(everything)
    assert EARLY <= during <= ITEMS, "the outage came while jobs ran, and others were still to come"
    assert [relay.item(key).attempts for key in everything] == [0] * len(everything), (
        "an outage is no attempt"
    )
    assert {relay.item(key).state for key in everything} == {ItemState.DONE}
    relay.close()

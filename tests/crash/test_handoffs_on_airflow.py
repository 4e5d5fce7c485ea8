"""Sixty hand-offs on a real Airflow while task processes are killed at random: each exactly once."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, create_engine, text

from airflow_instance import AirflowInstance
from airflow_relay.core.item import Item
from airflow_relay.core.states import ItemState, RunResult
from airflow_relay.ledger import items
from crash.on_airflow import (
    SWEEP_DAG,
    TICK_DAG,
    Switches,
    assert_nothing_is_held,
    assert_one_run_a_grant,
    assert_whole,
    quiet,
    run_dag,
    sweep,
)
from integration.relay_on_airflow import RelayOnAirflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ITEMS = 20
STAGES = ("first", "second", "third")
WORK, HAND_OFF = "step", "hand_off"
KILLS = {WORK: 15, HAND_OFF: 20}
AT_LEAST = 10
"""So many kills of each kind must have had an effect in Airflow's own eyes."""
CHANCE = 0.1
"""Of a kill, each time that somebody looks: so rare that the kills reach all stages."""
SEED = 20260302


@pytest.fixture(scope="module")
def relay(crashing_airflow: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(crashing_airflow, "march", "first")
    crashing_airflow.wait_for_dags(*(made.dag(s) for s in STAGES), TICK_DAG, SWEEP_DAG)
    quiet(made)
    yield made
    made.close()


@pytest.fixture(scope="module")
def metadata(crashing_airflow: AirflowInstance) -> Iterator[Engine]:
    """Airflow's own database: what runs now, in which process."""
    engine = create_engine(crashing_airflow.metadata_url)
    yield engine
    engine.dispose()


class Killer:
    """Kills processes of the pipeline's tasks; the intake's hand-off is one of them."""

    def __init__(self, airflow: AirflowInstance, metadata: Engine) -> None:
        self.airflow = airflow
        self.metadata = metadata
        self.dice = random.Random(SEED)
        self.killed: Counter[str] = Counter()

    def strike(self) -> None:
        """Perhaps kill one process that is at work now."""
        wanted = [kind for kind, most in KILLS.items() if self.killed[kind] < most]
        if not wanted or self.dice.random() > CHANCE:
            return
        kind = self.dice.choice(wanted)
        at_work = self._at_work(kind)
        if at_work and self._kill(self.dice.choice(at_work)):
            self.killed[kind] += 1

    def _at_work(self, task_id: str) -> list[int]:
        query = text(
            "SELECT pid FROM task_instance WHERE state = 'running' AND pid IS NOT NULL"
            " AND task_id = :task_id AND dag_id LIKE 'march\\_\\_%' ESCAPE '\\' ORDER BY pid"
        )
        with self.metadata.connect() as conn:
            return list(conn.execute(query, {"task_id": task_id}).scalars())

    def _kill(self, pid: int) -> bool:
        """Only a process below the scheduler: the number may belong to somebody else by now."""
        try:
            process = psutil.Process(pid)
            if self.airflow.component("scheduler").pid not in {p.pid for p in process.parents()}:
                return False
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        return True

    def effects(self) -> dict[str, int]:
        """Work that Airflow counts as failed, and tries of hand-offs after the first one."""
        failed = "SELECT count(*) FROM task_instance WHERE task_id = 'step' AND state = 'failed'"
        again = "SELECT sum(try_number - 1) FROM task_instance WHERE task_id = 'hand_off' AND try_number > 1"
        mine = " AND dag_id LIKE 'march\\_\\_%' ESCAPE '\\'"
        with self.metadata.connect() as conn:
            return {
                WORK: int(conn.execute(text(failed + mine)).scalar_one()),
                HAND_OFF: int(conn.execute(text(again + mine)).scalar_one() or 0),
            }


def known(relay: RelayOnAirflow) -> list[Item]:
    with relay.ledger.read() as tx:
        return [i for i in items.listing(tx, limit=1000) if i.pipeline == "march"]


def march(relay: RelayOnAirflow, switches: Switches, killer: Killer) -> int:
    """Let all items come to their end; returns the number of sweeps that this took.

    Each sweep comes a day after the last one, so that a second attempt is never a matter of the day's cap.
    """
    sweeps = 0

    def come_to_rest() -> list[Item] | None:
        killer.strike()
        found = known(relay)
        at_rest = all(item.state in (ItemState.DONE, ItemState.FAILED) for item in found)
        return found if len(found) == ITEMS and at_rest else None

    while True:
        found = relay.airflow.wait(
            come_to_rest, what="the items to be done or failed", timeout=900, interval=0.05
        )
        failed = [item for item in found if item.state is ItemState.FAILED]
        if not failed:
            return sweeps
        sweeps += 1
        switches.clock_ahead(timedelta(hours=25 * sweeps))
        assert sweep(relay)["refire"] >= 1  # the others may wait for a slot


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_sixty_hand_offs_under_random_kills_happen_once_each(
    relay: RelayOnAirflow, switches: Switches, metadata: Engine
) -> None:
    home = relay.airflow.home
    keys = [f"item-{n:02}" for n in range(ITEMS)]
    (home / "march.txt").write_text("\n".join(keys))
    killer = Killer(relay.airflow, metadata)
    relay.api.trigger_dag(relay.entry_dag)
    sweeps = march(relay, switches, killer)
    relay.airflow.wait(
        lambda: all(
            run["state"] in ("success", "failed")
            for stage in STAGES
            for run in relay.api.list_runs(relay.dag(stage))
        ),
        what="all runs to end",
        timeout=300,
    )
    run_dag(relay, TICK_DAG)

    assert {item.key for item in known(relay)} == set(keys)
    all_runs = [run for key in keys for run in relay.runs(key)]
    for key in keys:
        assert_whole(relay, key, STAGES)
    grants = assert_one_run_a_grant(relay, STAGES)
    assert_nothing_is_held(relay)
    counted = [run for run in all_runs if run.result is RunResult.SUCCESS]
    assert len(counted) == ITEMS * len(STAGES)
    begun, ended = Counter(lines(home / "begun.txt")), Counter(lines(home / "ended.txt"))
    assert set(begun) <= {run.run_id for run in all_runs}
    assert set(begun.values()) == {1}, "no run has worked twice"
    assert all(ended[run.run_id] == 1 for run in counted)
    effects = killer.effects()
    report = {
        "signals": dict(killer.killed),
        "effects": effects,
        "hand_offs": len(counted),
        "grants": grants,
        "sweeps": sweeps,
    }
    print(json.dumps(report))  # noqa: T201 - the figures, with pytest -s
    assert min(effects.values()) >= AT_LEAST, report

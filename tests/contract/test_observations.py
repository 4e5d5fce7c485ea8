"""What Airflow said last stands for its answers for a minute, and until the next tick."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from airflow_relay import compat
from airflow_relay.core.limits import HOLD_VARIABLE, LIMITS_VARIABLE, Hold
from airflow_relay.core.snapshot import Conditions
from airflow_relay.hooks import conditions as ring
from airflow_relay.ledger import governing
from airflow_relay.ledger.observations import MAX_AGE
from airflow_relay.ledger.schema import OBSERVATION, meta
from support.pipelines import Driver

FIRST, SECOND = "line__first", "line__second"
Recent = Callable[..., Conditions]


class Airflow:
    """Variables and pause states as a task's process reads them, and what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.variables: dict[str, str] = {}
        self.paused: set[str] = set()
        self.asked: list[str] = []
        monkeypatch.setattr(compat, "in_task_process", lambda: True)
        monkeypatch.setattr(compat, "is_dag_paused", self.is_dag_paused)
        monkeypatch.setattr(ring.Variable, "get", self.get)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return self.variables.get(name, default)

    def is_dag_paused(self, dag_id: str) -> bool:
        self.asked.append(dag_id)
        return dag_id in self.paused

    def questions(self) -> list[str]:
        """What was asked since the last call."""
        asked, self.asked = self.asked, []
        return sorted(asked)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    return Airflow(monkeypatch)


@pytest.fixture
def recent(drive: Driver) -> Recent:
    return lambda *targets: ring.recent_conditions(drive.ledger, drive.now, targets=targets)


def test_a_second_hand_off_asks_airflow_nothing(airflow: Airflow, recent: Recent) -> None:
    airflow.variables[LIMITS_VARIABLE] = '{"line.second": 1}'
    airflow.variables[HOLD_VARIABLE] = '{"line": "the editor is away"}'
    airflow.paused.add(SECOND)
    first = recent(SECOND)
    assert airflow.questions() == [SECOND, HOLD_VARIABLE, LIMITS_VARIABLE]
    assert first.limits == {"line.second": 1}
    assert first.holds == {"line": "the editor is away"}
    assert first.paused_dags == {SECOND}
    assert recent(SECOND) == first
    assert airflow.questions() == []


def test_a_dag_that_nobody_asked_about_is_asked_about_alone(airflow: Airflow, recent: Recent) -> None:
    recent(SECOND)
    airflow.questions()
    airflow.paused.add(FIRST)
    assert recent(FIRST).paused_dags == {FIRST}
    assert airflow.questions() == [FIRST]
    recent(FIRST, SECOND)
    assert airflow.questions() == []


def test_dags_with_ready_items_are_asked_about_too(airflow: Airflow, recent: Recent, drive: Driver) -> None:
    airflow.paused.add(FIRST)
    drive.conditions = recent(FIRST)
    drive.intake("waits")
    assert recent(SECOND).paused_dags == {FIRST}


def test_the_tick_renews_all_answers(airflow: Airflow, recent: Recent, drive: Driver) -> None:
    recent(SECOND)
    airflow.variables[LIMITS_VARIABLE] = '{"line.second": 1}'
    airflow.paused.add(SECOND)
    airflow.questions()
    ring.renew_conditions(drive.ledger, drive.now, targets=[FIRST])
    assert airflow.questions() == [FIRST, SECOND, HOLD_VARIABLE, LIMITS_VARIABLE]
    seen = recent(FIRST, SECOND)
    assert (seen.limits, seen.paused_dags) == ({"line.second": 1}, {SECOND})
    assert airflow.questions() == []


@pytest.mark.parametrize("late", [MAX_AGE, -timedelta(seconds=1)], ids=["old", "from the future"])
def test_what_was_seen_too_long_ago_is_asked_for_again(
    airflow: Airflow, recent: Recent, drive: Driver, late: timedelta
) -> None:
    recent(SECOND)
    airflow.paused.add(SECOND)
    airflow.questions()
    drive.now += late
    assert recent(SECOND).paused_dags == {SECOND}
    assert airflow.questions() == [SECOND, HOLD_VARIABLE, LIMITS_VARIABLE]


def stop_the_line(drive: Driver) -> None:
    with drive.ledger.write() as tx:
        governing.set_hold(tx, Hold(scope="line", reason="stop", until=None), by="me", now=drive.now)


def test_a_hold_by_command_counts_at_once(airflow: Airflow, recent: Recent, drive: Driver) -> None:
    recent(SECOND)
    stop_the_line(drive)
    assert recent(SECOND).holds == {"line": "stop"}


@pytest.mark.parametrize(("seconds", "holds"), [(0, {}), (30, {"line": "stop"})])
def test_what_a_hand_off_read_before_a_long_upload_is_read_again(
    airflow: Airflow, recent: Recent, drive: Driver, seconds: int, holds: dict[str, str]
) -> None:
    recent(SECOND)
    with drive.ledger.read() as tx:
        known = ring.known_conditions(tx, drive.now, targets=[SECOND])
    stop_the_line(drive)
    now = drive.later(seconds=seconds)
    assert ring.recent_conditions(drive.ledger, now, targets=[SECOND], known=known).holds == holds


def test_answers_that_somebody_else_has_asked_for_later_stay(
    airflow: Airflow, recent: Recent, drive: Driver
) -> None:
    recent(SECOND)
    with drive.ledger.read() as tx:
        known = ring.known_conditions(tx, drive.now, targets=[FIRST])  # which has to be asked about
    airflow.variables[LIMITS_VARIABLE] = '{"line.second": 1}'
    drive.later(seconds=2)
    ring.renew_conditions(drive.ledger, drive.now, targets=[SECOND])
    drive.later(seconds=1)
    ring.recent_conditions(drive.ledger, drive.now, targets=[FIRST], known=known)
    airflow.questions()
    assert recent(FIRST, SECOND).limits == {"line.second": 1}
    assert airflow.questions() == [], "of both DAGs it is known whether they are paused"


@pytest.mark.parametrize("text", ["{", "null", "[]", '{"at": "2026-03-02T09:00:00+00:00"}', '{"at": 1}'])
def test_what_another_version_has_kept_is_asked_for_again(
    airflow: Airflow, recent: Recent, drive: Driver, text: str
) -> None:
    recent(SECOND)
    airflow.questions()
    with drive.ledger.write() as tx:
        tx.conn.execute(update(meta).where(meta.c.name == OBSERVATION).values(value=text))
    recent(SECOND)
    assert airflow.questions() == [SECOND, HOLD_VARIABLE, LIMITS_VARIABLE]

"""Watching the watcher: how old the last sweep and the last tick are, as a status and one sentence.

The watchdog DAG, the ``check-recovery`` command, the health route and the dead-man ping tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

SWEEP: Final = "sweep"
TICK: Final = "tick"

MAX_AGE: Final[Mapping[str, timedelta]] = {
    SWEEP: timedelta(hours=3),  # it runs every 2 h
    TICK: timedelta(minutes=20),  # it runs every 5 min
}
"""Heartbeat → the age at which it is too old."""

_NAMES: Final = {SWEEP: "recovery sweep (relay__recovery)", TICK: "tick (relay__dispatch)"}


class Health(str, Enum):
    """What is known of recovery. From good to bad."""

    OK = "ok"
    LATE = "late"  # the last heartbeat is too old
    NEVER = "never"  # there was none yet
    UNREADABLE = "unreadable"  # nobody can say: the ledger does not answer


EXIT_CODES: Final[Mapping[Health, int]] = {
    Health.OK: 0,
    Health.LATE: 1,
    Health.NEVER: 1,
    Health.UNREADABLE: 2,
}
"""For a system's cron: 1 is a negative answer, 2 a problem of the environment."""

HTTP_STATUS: Final[Mapping[Health, int]] = {
    Health.OK: 200,
    Health.LATE: 503,
    Health.NEVER: 503,
    Health.UNREADABLE: 503,
}


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One heartbeat, judged.

    :param age: since the last one; ``None`` when there was none, or nobody can say.
    """

    name: str
    health: Health
    age: timedelta | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Status and age alone: fit for a route without login."""
        return {
            "status": self.health.value,
            "age_s": None if self.age is None else round(self.age.total_seconds()),
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """All heartbeats together: the worst of them decides."""

    watched: tuple[Watched, ...]
    health: Health
    sentence: str

    @property
    def ok(self) -> bool:
        return self.health is Health.OK

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.health]

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.health]

    def to_json(self) -> dict[str, Any]:
        """For ``GET /relay/health``: as Airflow's own health endpoint, no names of items or errors."""
        return {"status": self.health.value, **{w.name: w.to_json() for w in self.watched}}


def watch(
    name: str,
    last: datetime | None,
    *,
    now: datetime,
    max_age: timedelta,
    first_work: datetime | None = None,
) -> Watched:
    """Judge one heartbeat.

    :param last: when it last came, aware UTC; one from the future (a clock set back) counts as fresh.
    :param first_work: the oldest activity in the ledger: in a deployment younger than ``max_age`` a heartbeat
        that has not come yet is no alarm.
    """
    label = _NAMES.get(name, name)
    if last is None and (first_work is None or now - first_work <= max_age):
        text = f"The {label} has not run yet, and nothing in the ledger is old enough to need it."
        return Watched(name=name, health=Health.OK, age=None, sentence=text)
    if last is None:
        text = f"The {label} has never run: check that its DAG is there and unpaused."
        return Watched(name=name, health=Health.NEVER, age=None, sentence=text)
    age = max(now - last, timedelta(0))
    if age > max_age:
        text = (
            f"The {label} last ran {span(age)} ago, more than the {span(max_age)} that are allowed: check "
            "that its DAG is unpaused and the scheduler alive."
        )
        return Watched(name=name, health=Health.LATE, age=age, sentence=text)
    text = f"The {label} last ran {span(age)} ago."
    return Watched(name=name, health=Health.OK, age=age, sentence=text)


def report(
    beats: Mapping[str, datetime | None],
    *,
    now: datetime,
    max_age: Mapping[str, timedelta] = MAX_AGE,
    first_work: datetime | None = None,
) -> Report:
    """Judge all heartbeats that ``max_age`` names; see :func:`watch`."""
    return _together(
        watch(name, beats.get(name), now=now, max_age=limit, first_work=first_work)
        for name, limit in max_age.items()
    )


def unreadable(error: str) -> Report:
    """The ledger does not answer: that is an alarm, not a reason to be silent."""
    text = f"Nobody can say whether recovery works, since the ledger cannot be read: {error}"
    return Report(watched=(), health=Health.UNREADABLE, sentence=text)


def _together(watched: Iterable[Watched]) -> Report:
    found = tuple(watched)
    order = list(Health)
    worst = max((w.health for w in found), key=order.index, default=Health.OK)
    said = [w for w in found if w.health is not Health.OK] or found
    return Report(watched=found, health=worst, sentence=" ".join(w.sentence for w in said))


def span(length: timedelta) -> str:
    """A length of time as people say it: ``"40 s"``, ``"12 min"``, ``"3.5 h"``, ``"2 days"``."""
    seconds = length.total_seconds()
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h".replace(".0 h", " h")
    return f"{seconds / 86400:.0f} days"

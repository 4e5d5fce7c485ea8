"""When a person sees what is stuck, and what the person does about it."""

from __future__ import annotations

from typing import Final

from airflow_relay.simulation.chance import Chance
from airflow_relay.simulation.scenario import People
from airflow_relay.simulation.work import Draw

_HOUR: Final = 3600.0
_DAY: Final = 24


class Person:
    """Looks after stuck items while awake."""

    def __init__(self, spec: People, chance: Chance) -> None:
        self._awake = spec.awake
        self._notice = spec.notice_hours.quantile()
        self._gives_up = spec.gives_up.constant
        self._chance = chance

    def acts_at(self, item: int, time: int, stuck: float) -> float:
        """When the person acts on an item stuck for the ``time``-th time since ``stuck`` (seconds)."""
        hours = self._notice(self._chance.at(Draw.NOTICE, item, time))
        return self._add_waking(stuck / _HOUR, hours) * _HOUR

    def gives_up(self, item: int, time: int) -> bool:
        return self._chance.at(Draw.GIVES_UP, item, time) < self._gives_up

    def _add_waking(self, at: float, hours: float) -> float:
        """``at`` plus so many waking hours; both in hours from a midnight."""
        begin, end = self._awake
        if end - begin >= _DAY:
            return at + hours
        while True:
            day, clock = divmod(at, _DAY)
            midnight = day * _DAY
            if clock >= end:
                at = midnight + _DAY + begin
            elif clock < begin:
                at = midnight + begin
            elif clock + hours <= end:
                return at + hours
            else:
                hours -= end - clock
                at = midnight + _DAY + begin

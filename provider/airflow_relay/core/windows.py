"""Daily windows of stages: is it open, and when does it open next?"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo

from airflow_relay.core.pipeline import Window

# A day whose clock jumps over the whole window is rare, and two such days in a row do not happen.
_DAYS_AHEAD: Final = 4


def is_open(window: Window, zone: str, now: datetime) -> bool:
    """Whether a stage with this window may start now, by the wall clock of ``zone``.

    A window that starts and ends at the same time of day is open all day.
    """
    start, end = _time(window.start), _time(window.end)
    wall = now.astimezone(ZoneInfo(zone)).time()
    if start < end:
        return start <= wall < end
    return wall >= start or wall < end


def closed_until(window: Window | None, zone: str, now: datetime) -> datetime | None:
    """When a closed window opens next (UTC); None when it is open now, or when there is none."""
    if window is None or is_open(window, zone, now):
        return None
    return next_opening(window, zone, now)


def next_opening(window: Window, zone: str, now: datetime) -> datetime:
    """The first start of the window after ``now`` (UTC) at which it is really open.

    On the day on which the clock jumps over the start, a window that reaches beyond the jump opens by the
    instant that the start would have been; one that the jump swallows opens on the next day. On the day on
    which the clock goes back over the start, the window opens twice.
    """
    local = ZoneInfo(zone)
    today = now.astimezone(local).date()
    starts = sorted(
        _instant(today + timedelta(days=days), _time(window.start), local, fold=fold)
        for days in range(-1, _DAYS_AHEAD)
        for fold in (0, 1)
    )
    return next(at for at in starts if at > now and is_open(window, zone, at))


def _instant(day: date, at: time, zone: ZoneInfo, *, fold: int) -> datetime:
    return datetime.combine(day, at, tzinfo=zone).replace(fold=fold).astimezone(timezone.utc)


def _time(text: str) -> time:
    return time.fromisoformat(text)

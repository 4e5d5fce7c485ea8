"""The charts of the report: swim lanes of a day, histograms, work in progress, slot use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from airflow_relay.simulation.experiment import Outcome
from airflow_relay.simulation.recorder import DAY, HOUR, Lane, Level
from airflow_relay.simulation.report import svg
from airflow_relay.simulation.report.svg import Axis

WIDTH: Final = 960.0
LEFT: Final = 118.0
RIGHT: Final = 14.0
LANES: Final = 18
"""Lanes that are drawn of a model."""
_LANE: Final = 22.0


def lanes(outcome: Outcome, colours: Mapping[str, str], *, begin: float, end: float) -> str:
    """One day's items, one lane each, from registration to the end; what is pale is waiting.

    :param begin: left edge, seconds from the start of the simulation; ``end`` likewise.
    """
    shown = outcome.example.lanes[:LANES]
    height = 34 + _LANE * max(1, len(shown))
    x = Axis(begin, end, LEFT, WIDTH - RIGHT)
    parts = _hours(x, begin, end, height)
    for place, lane in enumerate(shown):
        parts += _lane(lane, 26 + place * _LANE, x, colours, end)
    if not shown:
        parts.append(svg.text(LEFT, 44, "no item came on this day", kind="muted"))
    return svg.picture(WIDTH, height, parts, label=f"Swim lanes of one day: {outcome.model.title}")


def _hours(x: Axis, begin: float, end: float, height: float) -> list[str]:
    parts = []
    step = 2 if end - begin <= 30 * HOUR else 4 if end - begin <= 60 * HOUR else 12
    hour = int(begin // HOUR)
    while hour * HOUR <= end:
        if hour % step == 0:
            at = x(hour * HOUR)
            midnight = hour % 24 == 0
            parts.append(svg.line(at, 20, at, height - 4, "midnight" if midnight else "grid"))
            parts.append(svg.text(at, 13, f"{hour % 24:02d}:00", anchor="middle", kind="tick"))
        hour += 1
    return parts


def _lane(lane: Lane, y: float, x: Axis, colours: Mapping[str, str], end: float) -> list[str]:
    done = lane.finished if lane.finished is not None else end
    took = f"{(done - lane.registered) / HOUR:.1f} h" if lane.finished is not None else "not finished"
    right = x(min(done, end))
    parts = [
        svg.text(LEFT - 8, y + 13, lane.key.replace("content/", "item "), anchor="end", kind="name"),
        svg.rect(
            x(lane.registered),
            y + 3,
            right - x(lane.registered),
            _LANE - 9,
            "var(--wait)",
            tip=f"{lane.key}: {took}, {lane.how or 'still on its way'}",
            more='rx="3"',
        ),
    ]
    for bar in lane.bars:
        if bar.begin >= end:
            continue
        minutes = (bar.end - bar.begin) / 60
        parts.append(
            svg.rect(
                x(bar.begin),
                y + 1,
                max(1.5, x(min(bar.end, end)) - x(bar.begin)),
                _LANE - 5,
                colours.get(bar.stage, "#999") if bar.good else "var(--bad)",
                tip=f"{bar.stage}: {minutes:.0f} min" + ("" if bar.good else ", failed"),
                more='rx="2"',
            )
        )
    if lane.finished is not None and lane.finished <= end:
        parts.append(svg.text(right + 5, y + 13, took, kind="tick"))
    return parts


def histogram(outcome: Outcome, colour: str, *, high: float, peak: float, bins: int = 48) -> str:
    """End-to-end times of all seeds; median and p95 are marked.

    :param high: right edge in hours, the same for all models; what is longer goes into the last bar.
    :param peak: the highest share of any bar of any model.
    """
    height, base = 116.0, 92.0
    x = Axis(0, high, 14, WIDTH / 2 - 22)
    y = Axis(0, peak, base, 14)
    counts = shares(outcome, high=high, bins=bins)
    width = (x.end - x.begin) / bins
    parts = [
        svg.rect(
            x.begin + i * width,
            y(share),
            width - 1,
            base - y(share),
            colour,
            tip=f"{i * high / bins:.1f} to {(i + 1) * high / bins:.1f} h: {share:.1%}",
        )
        for i, share in enumerate(counts)
        if share
    ]
    for tick in x.ticks(6):
        parts += [
            svg.line(x(tick), base, x(tick), base + 4, "axis"),
            svg.text(x(tick), base + 16, svg.label(tick), anchor="middle", kind="tick"),
        ]
    parts.append(svg.line(x.begin, base, x.end, base, "axis"))
    sample = outcome.end_to_end
    for value, words in ((sample.median, "median"), (sample.p95, "p95")):
        at = x(min(value, high))
        parts.append(svg.line(at, 14, at, base, "mark"))
        parts.append(svg.text(at + 4, 22 if words == "median" else 36, f"{words} {value:.1f} h", kind="mark"))
    parts.append(svg.text(x.end, base + 16, "hours", anchor="end", kind="tick"))
    return svg.picture(WIDTH / 2 - 8, height, parts, label=f"End-to-end times: {outcome.model.title}")


def shares(outcome: Outcome, *, high: float, bins: int = 48) -> list[float]:
    """Share of the items in each bar."""
    values = outcome.end_to_end.values
    counts = [0.0] * bins
    for value in values:
        counts[min(bins - 1, int(value / high * bins))] += 1 / len(values)
    return counts


def curves(levels: Sequence[tuple[str, str, Level]], *, days: int, title: str) -> str:
    """Levels over the first days, hourly means.

    :param levels: (name, colour, level).
    """
    height, base = 200.0, 172.0
    hours = min(days, 14) * 24
    series = [(name, colour, level.hourly(days * DAY)[:hours]) for name, colour, level in levels]
    most = max((max(values, default=0) for _, _, values in series), default=0) or 1
    x, y = Axis(0, hours, 44, WIDTH - RIGHT), Axis(0, most * 1.08, base, 12)
    parts = _frame(x, y, base, hours)
    for _, colour, values in series:
        points = [(x(hour + 0.5), y(value)) for hour, value in enumerate(values)]
        parts += [svg.area(points, base, fill=colour), svg.path(points, stroke=colour)]
    return svg.picture(WIDTH, height, parts, label=title)


def _frame(x: Axis, y: Axis, base: float, hours: int) -> list[str]:
    parts = []
    for tick in y.ticks(4):
        parts.append(svg.line(x.begin, y(tick), x.end, y(tick), "grid"))
        parts.append(svg.text(x.begin - 6, y(tick) + 4, svg.label(tick), anchor="end", kind="tick"))
    for day in range(hours // 24 + 1):
        at = x(day * 24)
        parts.append(svg.line(at, base, at, base + 4, "axis"))
        if day < hours // 24:
            parts.append(
                svg.text(x(day * 24 + 12), base + 17, f"day {day + 1}", anchor="middle", kind="tick")
            )
    parts.append(svg.line(x.begin, base, x.end, base, "axis"))
    return parts


def slots(outcome: Outcome) -> str:
    """Mean use of each limited key as a bar against its limit, and how many items wait for it."""
    keys = [k for k in sorted(outcome.limits) if outcome.limits[k] and k in outcome.in_use]
    height = 10 + 30.0 * max(1, len(keys))
    left, right = 190.0, WIDTH - 190
    parts = []
    for place, key in enumerate(keys):
        y = 8 + place * 30
        limit, used = outcome.limits[key], outcome.in_use[key]
        waiting = outcome.waiting.get(key, 0.0)
        full = right - left
        share = min(1.0, used / limit)
        parts += [
            svg.text(left - 8, y + 14, key, anchor="end", kind="name"),
            svg.rect(left, y, full, 18, "var(--wait)", tip=f"limit {limit}", more='rx="3"'),
            svg.rect(left, y, full * share, 18, "var(--use)", tip=f"{used:.2f} of {limit}", more='rx="3"'),
            svg.text(right + 8, y + 14, f"{share:.0%} of {limit}; {waiting:.2g} waiting", kind="tick"),
        ]
    if not keys:
        parts.append(svg.text(20, 22, "no limited capacity key", kind="muted"))
    return svg.picture(WIDTH, height, parts, label=f"Slot use: {outcome.model.title}")

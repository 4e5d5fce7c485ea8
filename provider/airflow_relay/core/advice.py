"""Propose barrier settings from what earlier runs took (``airflow relay tracks advise``).

The rule of thumb in the source document is "the 95th-percentile shortest-track-completion". We read it
so: take from each earlier run the duration of its *shortest* track; the first poll is the 95th percentile
of those. Polling before that is nearly always certain to find nothing final at all. The price of the rule
is that a run whose *every* track ends sooner waits for the first poll; the advice counts those runs.

The other two settings follow the document's own numbers:

- ceiling: twice the longest track that one has to expect, here the 95th percentile of each run's longest;
- interval: a sixth of the first poll (30 min for 3 h), longer if the typical run would need more than six
  polls, and never more than 30 min, so that a finished run does not wait long.

"If you routinely hit the ceiling, the track budgets are wrong": then the ceiling is not raised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from airflow_relay.core.barrier import (
    CEILING_REASON,
    MAX_DURATION,
    MIN_POLL_INTERVAL,
    BarrierSettings,
    TrackPhase,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_INTERVAL = timedelta(minutes=30)
TYPICAL_POLLS = 6
"""A typical run should need no more polls than this (the document's 2 to 6)."""
ROUTINE_SHARE = Fraction(1, 10)
"""The ceiling is hit routinely when at least this share of the runs, and at least two runs, hit it."""
ENOUGH_RUNS = 20
"""With fewer runs the 95th percentile is simply the largest value seen."""


@dataclass(frozen=True)
class TrackDuration:
    """How one track of one earlier run ended."""

    run: str
    """Whatever identifies the dispatch that the track belonged to."""
    track: str
    phase: TrackPhase
    duration: timedelta
    """From the recorded dispatch to the track's end."""
    reason: str | None = None


@dataclass(frozen=True)
class Advice:
    """Proposed settings and what they rest on."""

    settings: BarrierSettings
    """The proposal; the current settings where nothing can be said."""
    runs: int
    """Number of runs looked at."""
    ceiling_hits: int
    """Number of runs in which the ceiling tapped out at least one track."""
    budgets_wrong: bool
    """The ceiling is hit routinely: shorten the tracks, or give them budgets; do not raise the ceiling."""
    early_runs: int
    """Number of runs whose tracks had all completed before the proposed first poll."""
    tapped_by_track: Mapping[str, int] = field(hash=False)
    """How often the ceiling tapped out each track, most often first."""
    notes: tuple[str, ...]
    """What a person should know, one sentence each."""


def advise(records: Iterable[TrackDuration], *, current: BarrierSettings | None = None) -> Advice:
    """Propose first poll, interval and ceiling.

    Only completed tracks tell how long the work takes: a tapped-out track was cut off, so its duration
    says nothing. Durations that are negative or longer than a year are left out and counted in ``notes``.

    :param records: tracks of earlier runs, in any order.
    :param current: the settings in force; default: the barrier's defaults.
    """
    current = current or BarrierSettings()
    records = list(records)
    sound = [record for record in records if timedelta(0) <= record.duration <= MAX_DURATION]
    by_run: defaultdict[str, list[TrackDuration]] = defaultdict(list)
    for record in sound:
        by_run[record.run].append(record)

    cut_off = [record for record in sound if _hit_ceiling(record)]
    hits = len({record.run for record in cut_off})
    budgets_wrong = hits >= 2 and Fraction(hits, len(by_run)) >= ROUTINE_SHARE
    completed = [done for run in by_run.values() if (done := _completed(run))]
    settings = _propose(completed, current, keep_ceiling=budgets_wrong)
    early = sum(
        len(_completed(run)) == len(run) and max(_completed(run)) < settings.first_poll
        for run in by_run.values()
    )
    counts = Counter(record.track for record in cut_off)
    tapped = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
    advice = Advice(settings, len(by_run), hits, budgets_wrong, early, tapped, ())
    notes = _notes(advice, current, usable=len(completed), left_out=len(records) - len(sound))
    return replace(advice, notes=notes)


def percentile(values: Sequence[timedelta], share: Fraction) -> timedelta:
    """Return the smallest of ``values`` that at least ``share`` of them do not exceed (nearest rank).

    :param values: at least one duration.
    :param share: above 0, at most 1.
    """
    rank = -(-share.numerator * len(values) // share.denominator)  # rounded up
    return sorted(values)[rank - 1]


def _hit_ceiling(record: TrackDuration) -> bool:
    return record.phase is TrackPhase.TAPPED_OUT and record.reason == CEILING_REASON


def _completed(run: Sequence[TrackDuration]) -> list[timedelta]:
    return [record.duration for record in run if record.phase is TrackPhase.COMPLETE]


def _propose(
    completed: Sequence[Sequence[timedelta]], current: BarrierSettings, *, keep_ceiling: bool
) -> BarrierSettings:
    if not completed:
        return current
    longest = [max(durations) for durations in completed]
    first_poll = _round_up(percentile([min(durations) for durations in completed], Fraction(95, 100)))
    ceiling = _round_up(2 * percentile(longest, Fraction(95, 100)))
    ceiling = min(max(ceiling, MIN_POLL_INTERVAL), MAX_DURATION)
    if keep_ceiling:
        ceiling = min(ceiling, current.ceiling)
    first_poll = min(first_poll, ceiling)
    spread = percentile(longest, Fraction(1, 2)) - first_poll
    interval = max(first_poll / TYPICAL_POLLS, spread / (TYPICAL_POLLS - 1), MIN_POLL_INTERVAL)
    return BarrierSettings(
        first_poll=first_poll, poll_interval=min(_round_up(interval), MAX_INTERVAL), ceiling=ceiling
    )


def _round_up(value: timedelta) -> timedelta:
    """Round up to whole minutes, or below ten minutes to whole seconds."""
    step = timedelta(minutes=1) if value >= timedelta(minutes=10) else timedelta(seconds=1)
    return -(-value // step) * step


def _notes(advice: Advice, current: BarrierSettings, *, usable: int, left_out: int) -> tuple[str, ...]:
    notes = []
    if not usable:
        notes.append("no completed track is recorded yet; keep the current settings")
    elif usable < ENOUGH_RUNS:
        notes.append(
            f"only {usable} run(s) with completed tracks: the 95th percentile is the largest value seen; "
            f"ask again after {ENOUGH_RUNS} runs"
        )
    if advice.budgets_wrong:
        worst = ", ".join(f"{track} ({count})" for track, count in advice.tapped_by_track.items())
        notes.append(
            f"the ceiling was hit in {advice.ceiling_hits} of {advice.runs} runs, so the track budgets are "
            f"wrong: shorten these tracks or give them a max_wallclock, and leave the ceiling: {worst}"
        )
    elif advice.ceiling_hits:
        notes.append(f"the ceiling was hit in {advice.ceiling_hits} of {advice.runs} runs")
    if advice.early_runs:
        notes.append(
            f"in {advice.early_runs} of {advice.runs} runs every track had completed before the proposed "
            "first poll; if that wait matters, poll earlier"
        )
    if usable and advice.settings.ceiling > current.ceiling and not advice.budgets_wrong:
        notes.append(
            f"the proposed ceiling is above the current {current.ceiling}, which leaves too little room "
            "above the longest completed tracks"
        )
    if left_out:
        notes.append(f"left out {left_out} duration(s) that are negative or above {MAX_DURATION.days} days")
    return tuple(notes)

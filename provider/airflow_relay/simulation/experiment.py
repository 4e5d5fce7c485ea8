"""Run the models of a scenario over many seeds, and say how sure the figures are."""

from __future__ import annotations

import gc
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from statistics import NormalDist, fmean, stdev
from typing import Final, Protocol

from airflow_relay.simulation.blind_timers import BlindTimersModel
from airflow_relay.simulation.cron_model import CronModel
from airflow_relay.simulation.measures import MEASURES, bad_days
from airflow_relay.simulation.overnight_models import OvernightModel
from airflow_relay.simulation.recorder import DAY, Recorder
from airflow_relay.simulation.relay_model import RelayModel
from airflow_relay.simulation.sample import Sample
from airflow_relay.simulation.scenario import ModelKind, ModelSpec, Scenario

Progress = Callable[[], None]
"""Called once for each finished run."""


class Model(Protocol):
    """What runs one scenario once."""

    recorder: Recorder

    def run(self) -> Recorder: ...


class _Maker(Protocol):
    def __call__(self, scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> Model: ...


_MAKERS: Final[Mapping[ModelKind, _Maker]] = {
    ModelKind.CRON: CronModel,
    ModelKind.RELAY: RelayModel,
    ModelKind.BLIND_TIMERS: BlindTimersModel,
    ModelKind.FIXED_TIMER: OvernightModel,
    ModelKind.POLLING: OvernightModel,
}


@dataclass(frozen=True)
class Estimate:
    """A figure over many seeds: its mean with a 95 % confidence interval, and the range of the seeds."""

    mean: float
    low: float
    high: float
    least: float
    most: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Outcome:
    """One model over all seeds.

    :param example: the recorder of the first seed, for curves and swim lanes.
    :param end_to_end: hours, of all items of all seeds.
    :param stage_busy: stage → hours of work in all.
    :param waiting: capacity key or gate → how many items wait for it, on average.
    :param in_use: limited capacity key → units in use, on average.
    """

    model: ModelSpec
    figures: Mapping[str, Estimate]
    end_to_end: Sample
    stage_wait: Mapping[str, Sample]
    stage_busy: Mapping[str, float]
    waiting: Mapping[str, float]
    in_use: Mapping[str, float]
    limits: Mapping[str, int]
    example: Recorder


@dataclass(frozen=True)
class Result:
    """All models of a scenario, over the same seeds."""

    scenario: Scenario
    days: int
    seeds: tuple[int, ...]
    outcomes: Mapping[str, Outcome]


def simulate_once(scenario: Scenario, model: ModelSpec, *, days: int, seed: int) -> Recorder:
    """One model, one seed."""
    made = _MAKERS[model.kind](scenario, model, days=days, seed=seed)
    made.recorder.bad_days = bad_days(scenario, days)
    with _seldom_collecting():
        return made.run()


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Short-lived values and hardly a cycle: to look for cycles would cost a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def simulate(
    scenario: Scenario,
    *,
    days: int | None = None,
    seed: int = 1,
    seeds: int | None = None,
    progress: Progress = lambda: None,
) -> Result:
    """Run every model with the same seeds: ``seed``, ``seed + 1``, …

    :param days: simulated days of each run; left out: as the scenario says.
    :param seeds: how many; left out: as the scenario says.
    """
    days, number = days or scenario.days, seeds or scenario.seeds
    chosen = tuple(range(seed, seed + number))
    outcomes = {
        model.name: _over_seeds(scenario, model, days=days, seeds=chosen, progress=progress)
        for model in scenario.models
    }
    return Result(scenario, days, chosen, outcomes)


def _over_seeds(
    scenario: Scenario, model: ModelSpec, *, days: int, seeds: Sequence[int], progress: Progress
) -> Outcome:
    values: dict[str, list[float]] = {name: [] for name in MEASURES}
    end_to_end = Sample()
    waits: dict[str, Sample] = {}
    busy: Counter[str] = Counter()
    waiting: dict[str, float] = {}
    in_use: dict[str, float] = {}
    example: Recorder | None = None
    for recorder in _recorders(scenario, model, days=days, seeds=seeds):
        for name, measure in MEASURES.items():
            values[name].append(measure.of(recorder))
        end_to_end.merge(recorder.end_to_end)
        for stage, sample in recorder.stage_wait.items():
            waits.setdefault(stage, Sample()).merge(sample)
        busy.update(recorder.stage_busy)
        for means, levels in ((waiting, recorder.queued), (in_use, recorder.used)):
            for name, level in levels.items():
                means[name] = means.get(name, 0.0) + level.mean(days * DAY) / len(seeds)
        example = example or recorder
        progress()
    assert example is not None
    return Outcome(
        model=model,
        figures={name: estimate(found) for name, found in values.items()},
        end_to_end=end_to_end,
        stage_wait=waits,
        stage_busy=busy,
        waiting=waiting,
        in_use=in_use,
        limits=example.limits,
        example=example,
    )


def _recorders(
    scenario: Scenario, model: ModelSpec, *, days: int, seeds: Sequence[int]
) -> Iterator[Recorder]:
    """One of each seed, in their order. Those of long runs come from as many processes as there are cores."""
    once = partial(_simulate_seed, scenario, model, days)
    began = time.perf_counter()
    yield once(seeds[0])
    rest = seeds[1:]
    workers = min(_cores(), len(rest))
    if workers < 2 or (time.perf_counter() - began) * len(rest) < _WORTH_PROCESSES_S:
        yield from map(once, rest)
        return
    # Not forked: this process may have threads, of Airflow or of whoever calls.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(once, rest)


def _simulate_seed(scenario: Scenario, model: ModelSpec, days: int, seed: int) -> Recorder:
    return simulate_once(scenario, model, days=days, seed=seed)


def _cores() -> int:
    """The cores that this process may use, which are fewer than the machine's in a container."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_WORTH_PROCESSES_S: Final = 10.0
"""A process of its own imports for a second or two before it simulates."""


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of the seeds' figures; seeds without the figure are left out."""
    found = [v for v in values if not math.isnan(v)]
    if not found:
        return Estimate(*[math.nan] * 5)
    mean = fmean(found)
    half = _t95(len(found) - 1) * stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return Estimate(mean, mean - half, mean + half, min(found), max(found))


_T95_FEW: Final = {1: 12.706, 2: 4.303}


def _t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval (Cornish-Fisher expansion, within 1 % from 3 on)."""
    if freedom in _T95_FEW:
        return _T95_FEW[freedom]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + first + second + third

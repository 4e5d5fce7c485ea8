"""How fast the digital twin is, and whether its memory stays flat.

    python benchmarks/simulation_speed.py [--items 100000] [--days 365]

The first figure is one simulated year of the content pipeline as the first document describes it. The second
sends many items through the same six stages, with failures and recovery, at a rate that keeps about forty in
progress; with ``--memory`` Python's memory is compared with that of a tenth of them. The third figure is as
many items over ten seeds, which use all cores. Times are wall-clock and processor seconds.
"""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc
from collections.abc import Callable

from airflow_relay.simulation.experiment import simulate, simulate_once
from airflow_relay.simulation.quantity import Quantity
from airflow_relay.simulation.recorder import Recorder
from airflow_relay.simulation.relay_model import RelayModel
from airflow_relay.simulation.scenario import Scenario
from airflow_relay.simulation.scenario_file import load

PER_DAY = 9 * 48
"""Items a day of the second figure: nine with each intake, one intake every 30 minutes."""


def busy(scenario: Scenario) -> Scenario:
    """The content pipeline with an intake each half hour."""
    spec = scenario.pipelines["content"]
    entry, *others = spec.stages
    spec = spec.model_copy(
        update={
            "arrivals": spec.arrivals.model_copy(update={"per_intake": Quantity(value=9)}),
            "stages": (entry.model_copy(update={"schedule": "*/30 * * * *"}), *others),
        }
    )
    return scenario.model_copy(update={"pipelines": {"content": spec}})


def timed(name: str, work: Callable[[], Recorder]) -> Recorder:
    wall, cpu = time.perf_counter(), time.process_time()
    recorder = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name}: {wall:.1f} s ({cpu:.1f} s of processor time), {recorder.done} items, {recorder.runs} runs"
    )
    return recorder


def over_ten_seeds(scenario: Scenario, items: int) -> None:
    """As ``airflow relay simulate`` runs many seeds; each process gives its figures, not its items."""
    scenario = scenario.model_copy(update={"models": (scenario.model("completion"),)})
    began = time.perf_counter()
    (outcome,) = simulate(scenario, days=max(1, items // PER_DAY // 10), seeds=10).outcomes.values()
    took = time.perf_counter() - began
    print(f"{items} items over ten seeds: {took:.1f} s, {outcome.end_to_end.count} items ended")


def memory_growth(scenario: Scenario, items: int) -> None:
    """Python's own memory of two runs, one ten times as long as the other, at their ends."""
    model = scenario.model("completion")
    for number in (items // 10, items):
        tracemalloc.start()
        twin = RelayModel(scenario, model, days=max(1, number // PER_DAY), seed=1)
        twin.run()
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        held, most = now / 2**20, peak / 2**20
        print(f"  {twin.recorder.registered} items: {held:.1f} MiB at the end, peak {most:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--memory", action="store_true", help="trace memory as well (slow)")
    options = parser.parse_args()

    scenario = load("content")
    model = scenario.model("completion")
    timed(f"{options.days} days", lambda: simulate_once(scenario, model, days=options.days, seed=1))
    many = busy(scenario)
    days = options.items // PER_DAY
    timed(f"{options.items} items", lambda: simulate_once(many, model, days=days, seed=1))
    print(
        f"  most memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )
    over_ten_seeds(many, options.items)
    if options.memory:
        memory_growth(many, options.items)


if __name__ == "__main__":
    main()

"""How long one dispatch decision takes with 10,000 ready items.

    python benchmarks/dispatch_decision.py [--ready 10000] [--rounds 50]

Twenty pipelines of five stages share four agents and the 60 runs that Relay keeps in Airflow. Each figure is
the processor time of the pure decision; the ledger's queries are measured elsewhere. "as loaded" sees of each
stage what ``wanted`` asks for, as the ledger does, and includes the time to ask; "everything" sees all ready
items, the worst that a caller can do.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from airflow_relay.core.dispatch import Candidate, Group, Snapshot, dispatch, order_key, wanted
from airflow_relay.core.states import AIRFLOW_RUNS_KEY, PriorityClass

NOW = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
PIPELINES, STAGES = 20, ("research", "draft", "critique", "qa", "ship")

Stage = tuple[str, str]


def ready_items(count: int) -> dict[Stage, list[Candidate]]:
    rng = random.Random(7)
    stages: dict[Stage, list[Candidate]] = {}
    for number in range(count):
        pipeline, place = f"p{rng.randrange(PIPELINES)}", rng.randrange(len(STAGES))
        stage = STAGES[place]
        shared = ("agents",) if place % 2 else ()
        stages.setdefault((pipeline, stage), []).append(
            Candidate(
                item_id=number,
                pipeline=pipeline,
                stage=stage,
                dag_id=f"{pipeline}__{stage}",
                klass=PriorityClass.P3 if pipeline == "p0" else PriorityClass.P2,
                rank=96 + place,
                priority=rng.randrange(3),
                keys=(f"{pipeline}.{stage}", *shared),
                ready_since=NOW - timedelta(minutes=rng.randrange(600)),
            )
        )
    for members in stages.values():
        members.sort(key=lambda c: order_key(c, NOW))
    return stages


def group(members: list[Candidate]) -> Group:
    first = members[0]
    return Group(
        pipeline=first.pipeline,
        stage=first.stage,
        dag_id=first.dag_id,
        klass=first.klass,
        rank=first.rank,
        keys=first.keys,
        count=len(members),
        oldest=min(c.ready_since for c in members),
    )


def milliseconds(work: Callable[[], object], rounds: int) -> str:
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1000)
    times.sort()
    middle, high = statistics.median(times), times[int(rounds * 0.95)]
    return f"median {middle:6.2f} ms   p95 {high:6.2f} ms   max {times[-1]:6.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ready", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()

    stages = ready_items(options.ready)
    groups = [group(members) for members in stages.values()]
    situations = {
        "idle system": {},
        "one slot free": {AIRFLOW_RUNS_KEY: 59, "agents": 3},
        "agents full": {AIRFLOW_RUNS_KEY: 30, "agents": 4},
    }
    limits = {"agents": 4, AIRFLOW_RUNS_KEY: 60, **{f"p{i}.critique": 1 for i in range(PIPELINES)}}
    for name, usage in situations.items():
        bare = Snapshot(groups=groups, limits=limits, usage=usage)

        def load(bare: Snapshot = bare) -> Snapshot:
            wants = [wanted(g, bare, NOW) for g in groups]
            return bare.with_candidates(
                [c for members, most in zip(stages.values(), wants, strict=True) for c in members[:most]]
            )

        everything = bare.with_candidates([c for members in stages.values() for c in members])
        loaded = load()
        assert dispatch(loaded, NOW).grants == dispatch(everything, NOW).grants
        grants = len(dispatch(loaded, NOW).grants)
        print(f"{name}: {options.ready} ready in {len(groups)} stages, {grants} grants")
        as_loaded = milliseconds(lambda load=load: dispatch(load(), NOW), options.rounds)
        print(f"  as loaded  ({len(loaded.candidates):5} candidates)  {as_loaded}")
        whole = milliseconds(lambda everything=everything: dispatch(everything, NOW), options.rounds)
        print(f"  everything ({len(everything.candidates):5} candidates)  {whole}")


if __name__ == "__main__":
    main()

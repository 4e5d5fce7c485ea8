"""Write newsroom_phase_times.csv: phase times of three publications with forty items each.

The figures are made, not measured. The shape follows what people report of agent work: most runs take
minutes, a few take an hour or more (log-normal), and about four in ten drafts go back after their critique,
at most twice. Medians in minutes: research 24, draft 20, critique 8 (six critics side by side), qa 7, ship 2;
nothing takes longer than the stage timeout of 180. Each publication takes in four items every two hours, ten
times, staggered by 20 minutes, beginning at 00:00. The seed is fixed, so the file can be made again, byte by
byte:

    python tests/unit/core/data/newsroom_phase_times.py > tests/unit/core/data/newsroom_phase_times.csv
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterator
from math import exp
from typing import Final, TextIO

PUBLICATIONS: Final = ("gazette", "herald", "tribune")
MEDIANS: Final = {"research": 24, "draft": 20, "critique": 8, "qa": 7, "ship": 2}
SPREADS: Final = {"research": 0.7, "draft": 0.8, "critique": 0.9, "qa": 0.5, "ship": 0.3}
TIMEOUT: Final = 180.0
COLUMNS: Final = ("publication", "item", "arrives", "phase", "minutes")


def rows() -> Iterator[tuple[str, int, int, str, str]]:
    """One row for each visit of a phase, in the order in which the item goes through them."""
    rng = random.Random(20260601)
    for place, publication in enumerate(PUBLICATIONS):
        for number in range(40):
            arrives = number // 4 * 120 + place * 20
            rounds = 1 + (rng.random() < 0.4) + (rng.random() < 0.15)
            for phase in ("research", *("draft", "critique") * rounds, "qa", "ship"):
                # exp of a normal variate, by the sum of twelve uniform ones: the same on every platform.
                normal = sum(rng.random() for _ in range(12)) - 6
                minutes = min(TIMEOUT, MEDIANS[phase] * exp(SPREADS[phase] * normal))
                yield publication, number, arrives, phase, f"{minutes:.1f}"


def write(file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows())


if __name__ == "__main__":
    write(sys.stdout)

"""Idle work: are the citations of shipped articles still true, and how does the newsroom do?"""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING, Any

from include.content.citations import verify_citation
from include.content.files import locked, write_atomically

from .articles import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

STATISTICS = "statistics.json"


def recheck(records: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Citations that the installed packages no longer bear out: ``{"publication", "key", "reason"}`` each.

    A package that was upgraded may say something else on the same lines; the article is stale then.
    """
    stale = []
    for record in records:
        for reference in record["draft"]["references"]:
            check = verify_citation(
                reference["path"],
                int(reference["line"]),
                int(reference.get("end_line", reference["line"])),
                reference["quote"],
            )
            if not check:
                stale.append(
                    {"publication": record["publication"], "key": record["key"], "reason": check.reason}
                )
    return stale


def statistics(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Publication → articles, mean score, mean score of each critic, mean rounds."""
    by_publication: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        by_publication[record["publication"]].append(record)
    return {name: _figures(shipped) for name, shipped in sorted(by_publication.items())}


def _figures(shipped: list[Mapping[str, Any]]) -> dict[str, Any]:
    critics = sorted({critic for record in shipped for critic in record["scores"]})
    return {
        "articles": len(shipped),
        "average": round(mean(record["average"] for record in shipped), 2),
        "rounds": round(mean(record["rounds"] for record in shipped), 2),
        "critics": {
            critic: round(mean(r["scores"][critic] for r in shipped if critic in r["scores"]), 2)
            for critic in critics
        },
    }


def write_statistics(output: Path, stale: list[Any], *, now: datetime) -> dict[str, Any]:
    """Count and write ``statistics.json``; returns what it holds."""
    found = {
        "at": now.isoformat(),
        "publications": statistics(read_records(output)),
        "stale_citations": stale,
    }
    with locked(output):
        write_atomically(output, STATISTICS, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found

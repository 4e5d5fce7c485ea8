"""Idle work (P3): granted only while no publication has work that runs or could run."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task
from include.newsroom.pipeline import upkeep

from airflow_relay import current_item, stage_dag


def this_hour() -> list[str]:
    """One item an hour; while it waits for an idle moment, the next intakes add none."""
    from airflow_relay.clock import utcnow

    return [f"{utcnow():%Y-%m-%dT%H}"]


@stage_dag(upkeep, "recheck", intake=this_hour)
def recheck() -> Any:
    """Check the citations of all shipped articles against the packages that are installed now."""

    @task
    def citations() -> list[dict[str, str]]:
        from include.newsroom.articles import read_records
        from include.newsroom.settings import newsroom_settings
        from include.newsroom.upkeep import recheck

        return recheck(read_records(newsroom_settings().output))

    return citations()


@stage_dag(upkeep, "statistics")
def statistics() -> Any:
    """Count what was shipped, how it was scored and in how many rounds."""

    @task
    def count() -> dict[str, Any]:
        from include.newsroom.settings import newsroom_settings
        from include.newsroom.upkeep import write_statistics

        from airflow_relay.clock import utcnow

        stale = current_item().results["recheck"]
        return write_statistics(newsroom_settings().output, stale, now=utcnow())

    return count()

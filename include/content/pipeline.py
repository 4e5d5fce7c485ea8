"""The content pipeline: from a question about running Airflow to a published page.

Only research is scheduled. Every later stage starts the moment its predecessor is done.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_relay import DISCARD, END, Pipeline, Stage

content = Pipeline(
    "content",
    stages=[
        Stage("research", status="researched", to="write", schedule="0 7,11,19 * * *", limit=3),
        Stage(
            "write",
            status="drafted",
            to="self_review",
            limit=2,
            timeout=timedelta(hours=1),
            fallback="0 8,12,20 * * *",
            max_visits=2,  # self-review may send a draft back once
            after_max_visits="dedup_check",
        ),
        Stage(
            "self_review",
            status="reviewed",
            to={"ok": "dedup_check", "revise": "write"},
            outcome_field="data.verdict",
            fallback="0 9,13,21 * * *",
        ),
        Stage(
            "dedup_check",
            status="dedup_checked",
            to={"unique": "art_direction", "duplicate": DISCARD},
            outcome_field="data.verdict",
            limit=1,  # one at a time: of two near duplicates the first one stays
            fallback="0 10,14,22 * * *",
        ),
        Stage("art_direction", status="art_directed", to="publish", fallback="0 11,15,23 * * *"),
        Stage("publish", status="published", to=END, fallback="0 12,16,0 * * *"),
    ],
    description="Questions about running Airflow, answered from its own documentation.",
)

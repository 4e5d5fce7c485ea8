"""Three publications, one newsroom: what is scarce is shared, whatever publication the work is for.

Each publication is a pipeline of its own, with its own intake, holds and figures. What limits them is shared
capacity keys: three research jobs, two drafts and one critique at a time over all publications, and never
more than four items with the agents. QA and ship are cheap and run at once.

Near the end goes first (ship, qa, critique, draft, research): an article that is finished makes room, one
that is begun takes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from airflow_relay import END, PERSON, Panel, Pipeline, Stage
from airflow_relay.core.dispatch import check_shared_keys
from airflow_relay.core.states import PriorityClass

RESEARCH_DESK: Final = "newsroom.research"
DRAFT_DESK: Final = "newsroom.draft"
CRITIQUE_DESK: Final = "newsroom.critique"
AGENTS: Final = "agents"

LIMITS: Final = {RESEARCH_DESK: 3, DRAFT_DESK: 2, CRITIQUE_DESK: 1, AGENTS: 4}

PANEL: Final = Panel(
    critics=("structure", "voice", "ethics", "shareability", "legal_accuracy", "research_rigor"),
    threshold=8.5,
    rounds=3,
)
CRITIC_TIMEOUT: Final = timedelta(minutes=10)


def publication(name: str, schedule: str, description: str) -> Pipeline:
    """The pipeline of one publication: research → draft → critique → qa → ship."""
    return Pipeline(
        name,
        stages=[
            Stage(
                "research", status="researched", to="draft", schedule=schedule, keys=(RESEARCH_DESK, AGENTS)
            ),
            Stage(
                "draft",
                status="drafted",
                to="critique",
                keys=(DRAFT_DESK, AGENTS),
                timeout=timedelta(hours=1),
                max_visits=PANEL.rounds,
                after_max_visits=PERSON,
            ),
            Stage(
                "critique",
                status="critiqued",
                to={"pass": "qa", "revise": "draft"},
                keys=(CRITIQUE_DESK, AGENTS),
                # More than a critic and its retry take, so that the verdict can say who is missing.
                timeout=3 * CRITIC_TIMEOUT,
            ),
            Stage("qa", status="checked", to={"ok": "ship", "revise": "draft"}, outcome_field="data.verdict"),
            Stage("ship", status="shipped", to=END),
        ],
        limits=LIMITS,
        max_in_progress=12,
        description=description,
    )


PUBLICATIONS: Final = {
    p.name: p
    for p in (
        publication("news_oncall", "0 */2 * * *", "Short notes for engineers on call."),
        publication("news_platform", "20 */2 * * *", "Short notes for those who run Airflow for others."),
        publication("news_authors", "40 */2 * * *", "Short notes for authors of DAGs."),
    )
}

upkeep: Final = Pipeline(
    "news_upkeep",
    stages=[
        Stage("recheck", status="rechecked", to="statistics", schedule="10 * * * *"),
        Stage("statistics", status="counted", to=END),
    ],
    klass=PriorityClass.P3,
    description="Idle work: checks the citations of shipped articles again and counts how the newsroom does.",
)

check_shared_keys([*PUBLICATIONS.values(), upkeep])

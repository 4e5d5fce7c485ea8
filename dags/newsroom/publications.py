"""The DAGs of three publications, five stages each. They differ in their briefs; what is scarce is shared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import task
from include.newsroom.pipeline import CRITIC_TIMEOUT, PANEL, PUBLICATIONS

from airflow_relay import AgentJobOperator, Pipeline, current_item, panel, stage_dag


def instructions(job: str) -> str:
    """The job's prompt, read when a task renders its templates and not when the file is parsed."""
    from include.newsroom import desk

    return desk.instructions(job)


MACROS = {"instructions": instructions}
MODEL = "{{ var.value.get('relay_newsroom_model', 'extractive') }}"
RETRY = {"retries": 2, "retry_delay": timedelta(seconds=10), "poll_interval": 2}


def earlier_work() -> dict[str, Any]:
    """Stage → what its agents found; of the panel, its verdict."""
    from airflow_relay.operators.agent_job_results import full_result

    results = current_item().results
    return {name: full_result(r)["data"] if "job" in r else r for name, r in results.items()}


def agent_job(job: str, payload: Any) -> AgentJobOperator:
    """One agent job named after its stage."""
    return AgentJobOperator(
        task_id=job,
        input=payload,
        model=MODEL,
        instructions=f"{{{{ instructions('{job}') }}}}",
        metadata={"job": job},
        **RETRY,
    )


def research_stage(publication: Pipeline) -> None:
    def find_briefs() -> list[dict[str, Any]]:
        """The intake: each brief is an item; one that was taken in before is known by its key."""
        from include.newsroom.desk import find_briefs
        from include.newsroom.settings import newsroom_settings

        return find_briefs(newsroom_settings(), publication.name)

    @stage_dag(publication, "research", intake=find_briefs, user_defined_macros=MACROS)
    def research() -> AgentJobOperator:
        """Find passages of Airflow's own documentation that answer the brief's question."""

        @task
        def sources() -> dict[str, Any]:
            from include.newsroom.desk import research_payload

            return research_payload(current_item().payload)

        return agent_job("research", sources())


def draft_stage(publication: Pipeline) -> None:
    @stage_dag(publication, "draft", user_defined_macros=MACROS)
    def draft() -> AgentJobOperator:
        """Take in a manuscript, or write from passages; after the critics, with what they have found."""

        @task(multiple_outputs=True)
        def material() -> dict[str, Any]:
            from include.newsroom.desk import draft_job

            item = current_item()
            return draft_job(item.payload, earlier_work(), status=item.status)

        made = material()
        return AgentJobOperator(
            task_id="draft",
            input=made["input"],
            model=MODEL,
            instructions="{{ instructions(ti.xcom_pull(task_ids='material', key='job')) }}",
            metadata={"job": made["job"]},
            **RETRY,
        )


def critique_stage(publication: Pipeline) -> None:
    @stage_dag(publication, "critique", user_defined_macros=MACROS)
    def critique() -> Any:
        """Six critics; a note below 8.5 of 10 on average goes back to draft, three rounds at most."""

        @task
        def draft() -> dict[str, Any]:
            from include.newsroom.desk import critique_payload

            return critique_payload(earlier_work())

        def critic(name: str) -> dict[str, Any]:
            job = f"critique/{name}"
            return {"metadata": {"job": job}, "instructions": f"{{{{ instructions('{job}') }}}}"}

        return panel(
            PANEL,
            input=draft(),
            each=critic,
            model=MODEL,
            timeout=CRITIC_TIMEOUT,
            **{**RETRY, "retries": 1},
        )


def qa_stage(publication: Pipeline) -> None:
    @stage_dag(publication, "qa", user_defined_macros=MACROS)
    def qa() -> AgentJobOperator:
        """The last check of citations and readability."""

        @task
        def draft() -> dict[str, Any]:
            from include.newsroom.desk import qa_payload

            return qa_payload(earlier_work())

        return agent_job("qa", draft())


def ship_stage(publication: Pipeline) -> None:
    @stage_dag(publication, "ship", user_defined_macros=MACROS)
    def ship() -> Any:
        """Make the note ready for its readers and ship it."""

        @task
        def draft() -> dict[str, Any]:
            from include.newsroom.desk import ship_payload

            return ship_payload(earlier_work())

        @task
        def deliver(polished: dict[str, Any]) -> dict[str, Any]:
            from include.newsroom.articles import Article, ship
            from include.newsroom.desk import shipped_draft
            from include.newsroom.settings import newsroom_settings

            from airflow_relay.clock import utcnow

            item, results = current_item(), earlier_work()
            verdict = results["critique"]
            article = Article(
                publication=publication.name,
                key=item.key,
                draft=shipped_draft(results, polished["data"]),
                description=polished["data"]["meta_description"],
                scores=verdict["scores"],
                average=verdict["average"],
                rounds=verdict["round"],
                shipped_at=utcnow(),
            )
            return {"article": str(ship(article, newsroom_settings().output)), "rounds": article.rounds}

        return deliver(agent_job("ship", draft()).output)


for one in PUBLICATIONS.values():
    for stage in (research_stage, draft_stage, critique_stage, qa_stage, ship_stage):
        stage(one)

"""The DAGs of the content pipeline: six stages, each an ordinary DAG; only research has a schedule."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task
from include.content.pipeline import content

from airflow_relay import AgentJobOperator, current_item, stage_dag


def find_briefs() -> list[dict[str, Any]]:
    """The intake: each brief is an item; a brief that was taken in before is known by its key."""
    from include.content.briefs import read_briefs
    from include.content.settings import content_settings

    briefs = read_briefs(content_settings().briefs)
    return [{"key": b.key, "payload": b.as_payload(), "priority": b.priority} for b in briefs]


def instructions(job: str) -> str:
    """The job's prompt, read when a task renders its templates and not when the file is parsed."""
    from include.content import payloads

    return payloads.instructions(job)


MACROS = {"instructions": instructions}


def earlier_work() -> dict[str, Any]:
    """Stage → what its agent found."""
    from airflow_relay.operators.agent_job_results import full_result

    results = current_item().results
    return {name: full_result(result)["data"] for name, result in results.items() if "job" in result}


def agent_job(job: str, payload: Any, **arguments: Any) -> AgentJobOperator:
    """One agent job named after its stage."""
    return AgentJobOperator(
        task_id=job,
        input=payload,
        model="{{ var.value.get('relay_content_model', 'extractive') }}",
        instructions=f"{{{{ instructions('{job}') }}}}",
        metadata={"job": job},
        poll_interval=2,
        retries=2,
        **arguments,
    )


@stage_dag(content, "research", intake=find_briefs, user_defined_macros=MACROS)
def research() -> AgentJobOperator:
    """Find passages of Airflow's own documentation that answer the brief's question."""

    @task
    def sources() -> dict[str, Any]:
        from include.content.payloads import research_payload

        return research_payload(current_item().payload)

    return agent_job("research", sources())


@stage_dag(content, "write", user_defined_macros=MACROS)
def write() -> AgentJobOperator:
    """Write a draft in which each sentence cites a passage; after a review, with its feedback."""

    @task
    def material() -> dict[str, Any]:
        from include.content.payloads import write_payload

        return write_payload(current_item().payload, earlier_work())

    return agent_job("write", material())


@stage_dag(content, "self_review", user_defined_macros=MACROS)
def self_review() -> AgentJobOperator:
    """Check citations and readability; send the draft back once when it fails."""

    @task
    def draft() -> dict[str, Any]:
        from include.content.payloads import self_review_payload

        return self_review_payload(earlier_work())

    return agent_job("self_review", draft())


@stage_dag(content, "dedup_check", user_defined_macros=MACROS)
def dedup_check() -> AgentJobOperator:
    """Compare the draft with those that have passed this stage; a near duplicate is discarded."""

    @task
    def drafts() -> dict[str, Any]:
        from include.content.payloads import dedup_check_payload

        from airflow_relay.operators.agent_job_results import full_result

        others = current_item().others("write", passed="dedup_check", outcome="unique")
        drafts = [(key, full_result(result)["data"]) for key, result in others]
        return dedup_check_payload(earlier_work(), drafts)

    return agent_job("dedup_check", drafts())


@stage_dag(content, "art_direction", user_defined_macros=MACROS)
def art_direction() -> AgentJobOperator:
    """Make the cover."""

    @task
    def draft() -> dict[str, Any]:
        from include.content.payloads import art_direction_payload

        return art_direction_payload(earlier_work())

    return agent_job("art_direction", draft())


@stage_dag(content, "publish", user_defined_macros=MACROS)
def publish() -> Any:
    """Describe the page for readers and feeds, then write page, cover, index and feed."""

    @task
    def draft() -> dict[str, Any]:
        from include.content.payloads import publish_payload

        return publish_payload(earlier_work())

    @task
    def write_page(described: dict[str, Any]) -> dict[str, str]:
        from include.content.pages import build_page
        from include.content.provenance import stage_records
        from include.content.settings import content_settings
        from include.content.site import publish as publish_page

        from airflow_relay.clock import utcnow

        item = current_item()
        results = {**earlier_work(), "publish": described["data"]}
        page = build_page(item.payload, results, stage_records(item.runs()))
        published = publish_page(page, content_settings(), now=utcnow())
        return {"page": str(published.page), "cover": str(published.cover), "index": str(published.index)}

    return write_page(agent_job("publish", draft()).output)

"""``relay__dead_letter``: dead letters as Required Actions, one run a letter."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_relay.dags.stage import START_DATE
from airflow_relay.ledger.dead_letters import MAX_OFFERED
from airflow_relay.operators.letter_question import LetterQuestion
from airflow_relay.operators.letters import DEAD_LETTER_DAG_ID


def dead_letter_dag() -> DAG:
    """The tick starts its runs, so that at most 20 letters are open questions; it has no schedule."""
    with DAG(
        DEAD_LETTER_DAG_ID,
        schedule=None,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=2 * MAX_OFFERED,
        is_paused_upon_creation=False,
        tags={"relay"},
        doc_md=(
            "Items that automation has given up on, each a question under *Required Actions*: redrive it, "
            f"skip its stage, or discard it. At most {MAX_OFFERED} are asked at a time; all of them are in "
            "`airflow relay dead-letters`, which also decides about many at once."
        ),
    ) as dag:
        LetterQuestion(task_id="ask", retries=3, retry_delay=timedelta(seconds=30))
    return dag

"""stage 'draft': keys=('agents', 'agents') names a key twice: each run holds one unit of each."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *", keys=("agents", "agents")),
    ],
)

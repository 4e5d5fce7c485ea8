"""stage 'draft': its route table is empty: name at least one outcome."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to={}, schedule="0 7 * * *"),
    ],
)

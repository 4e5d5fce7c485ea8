"""stage 'draft': limit=True: give a whole number of at least 1, or leave it out."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *", limit=True),
    ],
)

"""stage 'lost' cannot be reached from 'draft': route one to it, or drop it."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
        Stage("lost"),
    ],
)

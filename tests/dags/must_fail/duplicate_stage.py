"""stage 'review' is declared 2 times: names must differ."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
        Stage("review"),
    ],
)

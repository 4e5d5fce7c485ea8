"""no stage has a schedule: give the entry stage one ('draft'?)."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review"),
        Stage("review"),
    ],
)

"""stage 'draft' leads to no end: route a stage behind it to END."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *", max_visits=2),
        Stage("review", to="draft"),
    ],
)

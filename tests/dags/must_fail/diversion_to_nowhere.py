"""stage 'draft': after_max_visits='ship' is no stage: use one of draft, review, END, DISCARD or PERSON."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *", max_visits=2, after_max_visits="ship"),
        Stage("review"),
    ],
)

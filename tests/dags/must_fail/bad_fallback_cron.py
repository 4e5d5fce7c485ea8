"""stage 'review': '61 * * * *' is no cron expression: five fields such as '0 7,11,19 * * *'."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review", fallback=("0 8 * * *", "61 * * * *")),
    ],
)

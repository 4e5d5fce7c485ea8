"""stage 'draft': "7 o'clock" is no cron expression: five fields such as '0 7,11,19 * * *'."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="7 o'clock"),
    ],
)

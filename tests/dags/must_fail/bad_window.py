"""stage 'draft': window '6 am' to '09:00': give times as 'HH:MM'."""

from airflow_relay import Pipeline, Stage, Window

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *", window=Window(start="6 am", end="09:00")),
    ],
)

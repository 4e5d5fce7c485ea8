"""stage 'draft': timeout=datetime.timedelta(0): give a timedelta above zero, or leave it out."""

from datetime import timedelta

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *", timeout=timedelta(0)),
    ],
)

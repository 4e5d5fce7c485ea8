"""timezone 'Europe/Atlantis' is unknown: use a name such as 'UTC' or 'Europe/Berlin'."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *"),
    ],
    timezone="Europe/Atlantis",
)

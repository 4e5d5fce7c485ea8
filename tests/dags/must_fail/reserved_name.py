"""the name 'relay' is taken (the operations DAGs are relay__…): choose another."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "relay",
    [
        Stage("draft", schedule="0 7 * * *"),
    ],
)

"""stage 'draft' is part of a loop without a bound"""

from airflow_relay import END, Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to={"ok": END, "again": "draft"}, schedule="0 7 * * *"),
    ],
)

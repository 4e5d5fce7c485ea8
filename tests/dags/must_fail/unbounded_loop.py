"""stage 'draft' is part of a loop without a bound: give one of its stages max_visits= (and
after_max_visits=).
"""

from airflow_relay import END, Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review", to={"ok": END, "again": "draft"}),
    ],
)

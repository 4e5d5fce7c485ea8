"""stages 'draft', 'review' have schedules: only the entry stage keeps `schedule=`; move the others to
`fallback=`.
"""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review", schedule="0 8 * * *"),
    ],
)

"""stage 'draft': outcome 'default' leads to 'reviw', which is no stage: use one of draft, review, END,
DISCARD or PERSON.
"""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="reviw", schedule="0 7 * * *"),
        Stage("review"),
    ],
)

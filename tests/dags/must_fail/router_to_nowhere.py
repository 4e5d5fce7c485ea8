"""stage 'draft': outcome 'bad' leads to 'bin', which is no stage: use one of draft, review, END,
DISCARD or PERSON.
"""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to={"ok": "review", "bad": "bin"}, schedule="0 7 * * *"),
        Stage("review"),
    ],
)

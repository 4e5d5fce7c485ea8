"""stage 're__view' is invalid: start with a letter, use letters, digits, '_' and '-', no '__'"""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", to="re__view", schedule="0 7 * * *"),
        Stage("re__view"),
    ],
)

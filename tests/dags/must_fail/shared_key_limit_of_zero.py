"""limits['agents']=0: give a whole number of at least 1."""

from airflow_relay import Pipeline, Stage

Pipeline(
    "articles",
    [
        Stage("draft", schedule="0 7 * * *", keys=("agents",)),
    ],
    limits={"agents": 0},
)

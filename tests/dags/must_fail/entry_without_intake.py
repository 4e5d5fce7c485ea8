"""Stage articles.draft is the entry: give it an intake=."""

from airflow.sdk import task

from airflow_relay import Pipeline, Stage, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
    ],
)


@stage_dag(articles, "draft")
def draft():
    @task
    def work():
        return None

    return work()

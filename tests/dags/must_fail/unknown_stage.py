"""Pipeline 'articles' has no stage 'reveiw'. Its stages are: draft, review."""

from airflow.sdk import task

from airflow_relay import Pipeline, Stage, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
    ],
)


@stage_dag(articles, "reveiw")
def review():
    @task
    def work():
        return None

    return work()

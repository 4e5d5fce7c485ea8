"""Stage articles.review has an intake, but draft is the entry."""

from airflow.sdk import task

from airflow_relay import Pipeline, Stage, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
    ],
)


@stage_dag(articles, "review", intake=list)
def review():
    @task
    def work():
        return None

    return work()

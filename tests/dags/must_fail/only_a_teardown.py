"""Stage articles.review has no tasks: build at least one in its function."""

from airflow.sdk import teardown

from airflow_relay import Pipeline, Stage, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
    ],
)


@stage_dag(articles, "review")
def review():
    @teardown
    def clean_up():
        return None

    clean_up()

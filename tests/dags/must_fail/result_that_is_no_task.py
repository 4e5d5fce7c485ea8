"""Stage articles.review: its function returned 'done'. Return the task whose value is the stage's
result, or None.
"""

from airflow.sdk import task

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
    @task
    def work():
        return None

    work()
    return "done"

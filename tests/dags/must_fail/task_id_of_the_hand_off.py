"""Stage articles.review: the task id 'hand_off' is taken by Relay: choose another."""

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
    def hand_off():
        return None

    return hand_off()

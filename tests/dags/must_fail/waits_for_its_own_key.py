"""Stage articles.draft waits for runs of articles__review, which need the capacity keys airflow.runs
that it holds itself meanwhile
"""

from airflow.providers.standard.sensors.external_task import ExternalTaskSensor

from airflow_relay import Pipeline, Stage, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("draft", to="review", schedule="0 7 * * *"),
        Stage("review"),
    ],
)


@stage_dag(articles, "draft", intake=list)
def draft():
    ExternalTaskSensor(task_id="wait", external_dag_id="articles__review")

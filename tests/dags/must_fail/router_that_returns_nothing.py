"""Stage articles.judge is a router, and its function returns nothing: return the task whose value is the
outcome (`return decide()`).
"""

from airflow.sdk import task

from airflow_relay import END, Pipeline, Stage, stage_dag

articles = Pipeline("articles", [Stage("judge", to={"ok": END, "bad": END}, schedule="0 7 * * *")])


@stage_dag(articles, "judge", intake=list)
def judge():
    @task
    def read():
        return "text"

    @task
    def decide(text):
        return "ok" if text else "bad"

    decide(read())

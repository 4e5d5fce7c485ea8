"""
Stage articles.gather waits for runs of articles__draft, which need the capacity keys airflow.runs, agents
that it holds itself meanwhile: enough of them would wait for ever. Let the item go on to that stage by a
route, or do the work in a plain DAG.
"""

from airflow_relay import DispatchTracks, Pipeline, Stage, TrackBarrierSensor, TrackRun, stage_dag

articles = Pipeline(
    "articles",
    [
        Stage("gather", to="draft", schedule="0 7 * * *", keys=("agents",)),
        Stage("draft", keys=("agents",)),
    ],
    limits={"agents": 2},
)


@stage_dag(articles, "gather", intake=list)
def gather():
    sent = DispatchTracks(task_id="send", tracks=[TrackRun(name="a", dag_id="articles__draft")])
    barrier = TrackBarrierSensor(task_id="wait", tracks=sent.tracks)
    sent >> barrier
    return barrier

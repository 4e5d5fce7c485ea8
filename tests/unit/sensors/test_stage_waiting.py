"""A stage that waits for other runs may hold no capacity key that they need: refused at parse."""

from __future__ import annotations

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk import task

from airflow_relay import DispatchTracks, Pipeline, Stage, TrackBarrierSensor, TrackRun, stage_dag
from airflow_relay.core.pipeline import PipelineError

PIPELINE = Pipeline(
    "waits",
    [
        Stage("gather", schedule="0 7 * * *", to="work", keys=("agents",)),
        Stage("work", keys=("agents",)),
    ],
    limits={"agents": 1},
)


def build(body):
    return stage_dag(PIPELINE, "gather", intake=list)(body)


def barrier_on_runs():
    return TrackBarrierSensor(task_id="wait", tracks=[TrackRun(name="a", dag_id="waits__work")])


def dispatch_and_barrier_by_name():
    sent = DispatchTracks(task_id="send", tracks=[TrackRun(name="a", dag_id="waits__work")])
    sent >> TrackBarrierSensor(task_id="wait", tracks=["a"])


def mapped_barrier():
    tracks = [TrackRun(name="a", dag_id="waits__work")]
    TrackBarrierSensor.partial(task_id="wait", tracks=tracks).expand(group=["x", "y"])


def trigger_and_wait():
    TriggerDagRunOperator(task_id="wait", trigger_dag_id="waits__work", wait_for_completion=True)


def external_sensor():
    ExternalTaskSensor(task_id="wait", external_dag_id="waits__work")


@pytest.mark.parametrize(
    "body",
    [barrier_on_runs, dispatch_and_barrier_by_name, mapped_barrier, trigger_and_wait, external_sensor],
    ids=lambda body: body.__name__,
)
def test_waiting_for_runs_that_need_what_the_stage_holds_is_refused(body):
    with pytest.raises(
        PipelineError, match=r"waits\.gather waits for runs of waits__work.*agents.*plain DAG"
    ):
        build(body)


def test_tracks_in_plain_dags_may_be_waited_for():
    def body():
        sent = DispatchTracks(task_id="send", tracks=[TrackRun(name="a", dag_id="plain")])
        sent >> TrackBarrierSensor(task_id="wait", tracks=sent.tracks)

    assert {"send", "wait", "hand_off"} <= set(build(body).task_ids)


def test_starting_a_run_without_waiting_for_it_is_allowed():
    def body():
        TriggerDagRunOperator(task_id="send", trigger_dag_id="waits__work")

        @task
        def go_on():
            return None

        go_on()

    assert build(body) is not None


def test_dispatch_without_a_barrier_is_allowed():
    def body():
        DispatchTracks(task_id="send", tracks=[TrackRun(name="a", dag_id="waits__work")])

    assert build(body) is not None

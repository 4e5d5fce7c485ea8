"""What ``stage_dag`` makes of a function that builds tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperator, setup, task, task_group, teardown
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_relay import END, Pipeline, Stage, stage_dag
from airflow_relay.core.pipeline import PipelineError
from airflow_relay.operators.guard import Guard
from airflow_relay.operators.hand_off import AtOnce, HandOff
from airflow_relay.policies.stage_retry import StageRetryPolicy, record_final

README = Path(__file__).resolve().parents[2] / "README.md"

pipeline = Pipeline(
    "shapes",
    [
        Stage("first", status="firsted", to="second", schedule="0 7 * * *"),
        Stage("second", to={"ok": END, "again": "first"}, max_visits=3),
    ],
    timezone="Europe/Berlin",
)


def build(body: Any, name: str = "second", **arguments: Any) -> DAG:
    made = stage_dag(pipeline, name, **arguments)(body)
    assert made is not None
    return made


def hook_of(operator: BaseOperator | MappedOperator) -> Any:
    if isinstance(operator, MappedOperator):
        return operator.partial_kwargs["pre_execute"]
    return operator._pre_execute_hook


def test_every_kind_of_task_is_guarded_in_front_of_what_its_author_set() -> None:
    called: list[str] = []

    def own(context: Any) -> None:
        called.append("own")

    def body() -> Any:
        @task(pre_execute=own)
        def with_own_hook() -> int:
            return 1

        @task
        def mapped(x: int) -> int:
            return x

        @task_group(default_args={"pre_execute": own})
        def group() -> None:
            PythonOperator(task_id="in_group", python_callable=print)

        first = with_own_hook()
        several = mapped.expand(x=[1, 2])
        first >> several >> group() >> EmptyOperator(task_id="empty")
        return several

    dag = build(body)
    work = [t for t in dag.tasks if t.task_id != "hand_off"]
    assert {t.task_id for t in work} == {"with_own_hook", "mapped", "group.in_group", "empty"}
    for operator in work:
        hook = hook_of(operator)
        assert isinstance(hook, Guard), operator.task_id
        assert isinstance(operator.retry_policy, StageRetryPolicy), operator.task_id
    assert hook_of(dag.get_task("with_own_hook")).author is own
    assert hook_of(dag.get_task("group.in_group")).author is own
    assert called == []


def test_authors_failure_callbacks_come_behind_ours() -> None:
    def own(context: Any) -> None: ...

    def body() -> None:
        PythonOperator(task_id="plain", python_callable=print, on_failure_callback=own)
        PythonOperator.partial(task_id="many", python_callable=print, on_failure_callback=[own]).expand(
            op_args=[[1], [2]]
        )

    dag = build(body, "first", intake=list)
    assert list(dag.get_task("plain").on_failure_callback) == [record_final, own]
    assert list(dag.get_task("many").on_failure_callback) == [record_final, own]


def own_success(context: Any) -> None: ...


def single() -> None:
    PythonOperator(task_id="last", python_callable=print, on_success_callback=own_success)


def single_behind_several() -> None:
    @task
    def each(x: int) -> int:
        return x

    several = each.expand(x=[1, 2])
    several >> PythonOperator(task_id="last", python_callable=print, on_success_callback=[own_success])


def two_ends() -> None:
    for name in ("last", "beside"):
        PythonOperator(task_id=name, python_callable=print, on_success_callback=own_success)


def mapped_end() -> None:
    PythonOperator.partial(task_id="last", python_callable=print, on_success_callback=own_success).expand(
        op_args=[[1], [2]]
    )


def end_in_a_mapped_group() -> None:
    @task_group
    def group(x: int) -> None:
        PythonOperator(task_id="in_it", python_callable=print, op_args=[x], on_success_callback=own_success)

    group.expand(x=[1, 2])


def end_without_a_process() -> None:
    EmptyOperator(task_id="last", on_success_callback=own_success)


def clean_up_behind_it() -> None:
    work = PythonOperator(task_id="work", python_callable=print)
    last = PythonOperator(task_id="last", python_callable=print, on_success_callback=own_success)
    work >> last.as_teardown(on_failure_fail_dagrun=False)


@pytest.mark.parametrize("body", [single, single_behind_several])
def test_a_single_last_task_hands_off_in_front_of_what_its_author_set(body: Any) -> None:
    dag = build(body, "first", intake=list)
    first, second = dag.get_task("last").on_success_callback
    assert isinstance(first, AtOnce)
    assert first.hand_off is dag.get_task("hand_off")
    assert second is own_success


@pytest.mark.parametrize(
    "body", [two_ends, mapped_end, end_in_a_mapped_group, end_without_a_process, clean_up_behind_it]
)
def test_whose_end_is_not_the_success_of_one_process_is_left_to_the_hand_off(body: Any) -> None:
    dag = build(body, "first", intake=list)
    for one in dag.tasks:
        callbacks = one.on_success_callback or []
        assert not any(isinstance(c, AtOnce) for c in callbacks), one.task_id


def test_the_single_task_of_a_router_is_the_one_that_decides() -> None:
    def body() -> None:
        PythonOperator(task_id="decide", python_callable=print)

    hand_off = build(body).get_task("hand_off")
    assert isinstance(hand_off, HandOff)
    assert hand_off.shape.result_task_id == "decide"


def test_the_hand_off_is_a_teardown_behind_every_leaf_and_the_only_task_added() -> None:
    def body() -> Any:
        one = PythonOperator(task_id="one", python_callable=print)
        two = PythonOperator(task_id="two", python_callable=print)
        PythonOperator(task_id="three", python_callable=print)
        one >> two
        return two

    dag = build(body)
    hand_off = dag.get_task("hand_off")
    assert isinstance(hand_off, HandOff)
    assert hand_off.is_teardown
    assert hand_off.on_failure_fail_dagrun
    assert hand_off.upstream_task_ids == {"two", "three"}
    assert dag.task_ids.count("hand_off") == 1
    assert len(dag.tasks) == 4
    assert hand_off.shape.result_task_id == "two"
    assert set(hand_off.shape.ends) == {"two", "three"}


def test_setups_and_teardowns_are_never_fenced_and_never_count_as_work() -> None:
    def body() -> None:
        @setup
        def prepare() -> None: ...

        @teardown
        def clean() -> None: ...

        @task
        def work() -> None: ...

        prepare() >> work() >> clean()

    dag = build(body)
    assert isinstance(hook_of(dag.get_task("work")), Guard)
    assert hook_of(dag.get_task("prepare")) is None
    assert hook_of(dag.get_task("clean")) is None
    assert dag.get_task("hand_off").shape.work == ("work",)
    assert dag.get_task("hand_off").upstream_task_ids == {"clean"}


def test_only_the_entry_is_scheduled_and_item_runs_cannot_block_its_schedule() -> None:
    def body() -> None:
        EmptyOperator(task_id="work")

    entry = build(body, "first", intake=list)
    later = build(body)
    assert "0 7 * * *" in str(entry.timetable.summary)
    assert type(later.timetable).__name__ == "NullTimetable"
    assert entry.max_active_runs == later.max_active_runs == 1000


def test_tags_documentation_form_and_the_edge_to_the_next_stage() -> None:
    def body() -> None:
        """What the second stage is for."""
        EmptyOperator(task_id="work")

    dag = build(body, tags=["mine"])
    assert set(dag.tags) == {"mine", "relay", "pipeline:shapes", "stage:second"}
    assert "What the second stage is for." in (dag.doc_md or "")
    assert "airflow relay log" in (dag.doc_md or "")
    assert dag.params["item_id"] is None
    assert dag.get_task("hand_off").trigger_dag_id == "shapes__first"


@pytest.mark.parametrize(
    ("name", "arguments", "body", "cure"),
    [
        ("third", {}, lambda: EmptyOperator(task_id="a"), "no stage 'third'"),
        ("second", {"intake": list}, lambda: EmptyOperator(task_id="a"), "first is the entry"),
        ("first", {}, lambda: EmptyOperator(task_id="a"), "give it an intake="),
        ("second", {}, lambda: None, "has no tasks"),
        ("second", {}, lambda: [EmptyOperator(task_id="a")], "Return the task"),
        ("second", {}, lambda: EmptyOperator(task_id="hand_off"), "'hand_off' is taken"),
    ],
)
def test_a_stage_that_cannot_work_is_refused_with_its_cure(
    name: str, arguments: dict[str, Any], body: Any, cure: str
) -> None:
    with pytest.raises(PipelineError, match=re.escape(cure)):
        stage_dag(pipeline, name, **arguments)(body)


def test_the_readme_shows_a_chain_that_works_in_at_most_20_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    lines = [line for line in code.group(1).splitlines() if line.strip()]
    assert len(lines) <= 20
    namespace: dict[str, Any] = {}
    exec(compile(code.group(1), "README.md", "exec"), namespace)
    dags = {name: value for name, value in namespace.items() if isinstance(value, DAG)}
    assert {d.dag_id for d in dags.values()} == {"articles__research", "articles__write", "articles__publish"}
    assert dags["research"].get_task("hand_off").trigger_dag_id == "articles__write"

"""Everything that people do to runs in Airflow's UI does what they expect (DESIGN 3.5 and 3.9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_instance import AirflowInstance
from airflow_relay.core.guard import REWIND_BURST
from airflow_relay.core.states import ItemState, RunResult, RunState
from integration.relay_on_airflow import RelayOnAirflow

STAGES = ("first", "second", "choose", "last")


@pytest.fixture(scope="module")
def relay(airflow_instance: AirflowInstance) -> Iterator[RelayOnAirflow]:
    made = RelayOnAirflow(airflow_instance, "by_hand", "first")
    airflow_instance.wait_for_dags(*(made.dag(s) for s in STAGES), "relay__dispatch")
    yield made
    made.close()


def test_an_item_flows_to_its_end_by_completions_alone(relay: RelayOnAirflow) -> None:
    key = relay.start("flows")
    item = relay.wait_for(key, ItemState.DONE)
    assert item.status == "lasted"
    assert {s: len(r) for s, r in relay.airflow_runs(key, STAGES).items()} == dict.fromkeys(STAGES, 1)
    run = relay.run_of(key, "last")
    assert relay.wait_for_run(run)["state"] == "success"
    assert f"item **{key}**".replace("-", "\\-") in (relay.api.get_note(run.dag_id, run.run_id) or "")
    assert relay.results(key)["second"]["stage"] == "second"


def test_clear_of_a_failed_stage_runs_it_again_and_the_chain_goes_on(relay: RelayOnAirflow) -> None:
    key = relay.start("clear", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    run = relay.run_of(key, "second")
    assert relay.wait_for_run(run, "failed")["state"] == "failed"
    relay.signal(key, "second")
    relay.api.clear_run(run.dag_id, run.run_id)
    relay.wait_for(key, ItemState.DONE)
    assert relay.wait_for_run(run, "success")["state"] == "success"
    assert len(relay.airflow_runs(key, STAGES)["second"]) == 1, "no second run: the cleared one did it"


def test_mark_success_of_the_failed_work_lets_the_item_go_on(relay: RelayOnAirflow) -> None:
    key = relay.start("mark", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    run = relay.run_of(key, "second")
    relay.wait_for_run(run, "failed")
    relay.api.set_task_state(run.dag_id, run.run_id, "work", "success")
    relay.wait_for(key, ItemState.DONE)


def test_mark_success_in_a_router_asks_a_person_for_the_outcome(relay: RelayOnAirflow) -> None:
    key = relay.start("router", choose="fail")
    relay.wait_for(key, ItemState.FAILED, stage="choose")
    run = relay.run_of(key, "choose")
    relay.wait_for_run(run, "failed")
    relay.api.set_task_state(run.dag_id, run.run_id, "work", "success")
    item = relay.wait_for(key, ItemState.DEAD, stage="choose")
    assert "it knows ship, drop" in (item.error_reason or "")


def test_clear_of_a_stage_that_the_item_has_left_rewinds_it(relay: RelayOnAirflow) -> None:
    key = relay.start("rewind", choose="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="choose")
    first, choose = relay.run_of(key, "first"), relay.run_of(key, "choose")
    relay.api.clear_run(first.dag_id, first.run_id)
    relay.wait_for(key, ItemState.RUNNING, stage="choose", more=lambda i: i.epoch > choose.epoch)
    superseded = next(r for r in relay.runs(key) if r.id == choose.id)
    assert superseded.state is RunState.SUPERSEDED
    relay.signal(key, "choose")
    relay.wait_for(key, ItemState.DONE)
    relay.wait_for_run(choose)
    assert len(relay.airflow_runs(key, STAGES)["last"]) == 1, "the superseded run triggered nothing"


def test_clear_of_an_old_run_of_a_finished_item_is_refused_and_says_how_to_force_it(
    relay: RelayOnAirflow,
) -> None:
    key = relay.start("old")
    done = relay.wait_for(key, ItemState.DONE)
    run = relay.run_of(key, "second")
    relay.api.clear_run(run.dag_id, run.run_id)
    relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=frozenset({"failed"}))
    assert relay.wait_for_run(run, "failed")["state"] == "failed"
    assert f"airflow relay rewind {key} second" in relay.api.task_log(
        run.dag_id, run.run_id, "work", try_number=2
    )
    assert relay.item(key) == done


def test_clear_of_the_last_stage_of_a_finished_item_runs_it_once_more(relay: RelayOnAirflow) -> None:
    key = relay.start("again")
    done = relay.wait_for(key, ItemState.DONE)
    run = relay.run_of(key, "last")
    relay.wait_for_run(run, "success")
    relay.api.clear_run(run.dag_id, run.run_id)
    relay.wait_for(key, ItemState.DONE, more=lambda i: i.last_activity_at > done.last_activity_at)
    assert any("Cleared: last" in line for line in relay.log(key))


def test_mark_failed_of_a_running_stage_stays_failed_and_hands_nothing_on(relay: RelayOnAirflow) -> None:
    key = relay.start("failed", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    run = relay.run_of(key, "second")
    relay.api.set_run_state(run.dag_id, run.run_id, "failed")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    assert relay.wait_for_run(run, "failed")["state"] == "failed"
    assert relay.airflow_runs(key, STAGES)["choose"] == []


def test_delete_of_a_run_is_noticed_by_the_next_tick(relay: RelayOnAirflow) -> None:
    other = relay.start("lost", second="wait")
    relay.wait_for(other, ItemState.RUNNING, stage="second")
    lost = relay.run_of(other, "second")
    relay.airflow_forgets(lost)
    relay.tick()
    assert relay.wait_for(other, ItemState.FAILED).stage == "second"
    assert relay.run_of(other, "second").result is RunResult.LOST
    assert "deleted" in (relay.item(other).error_reason or "")  # type: ignore[union-attr]


def test_a_paused_stage_keeps_its_items_waiting_and_unpausing_serves_them_once(relay: RelayOnAirflow) -> None:
    relay.api.pause(relay.dag("choose"))
    relay.tick()  # a hand-off goes by what the tick has seen
    try:
        key = relay.start("paused")
        item = relay.wait_for(key, ItemState.READY, stage="choose")
        assert item.attempts == 0
        assert relay.airflow_runs(key, STAGES)["choose"] == []
    finally:
        relay.api.unpause(relay.dag("choose"))
    relay.tick()
    relay.wait_for(key, ItemState.DONE)
    assert len(relay.airflow_runs(key, STAGES)["choose"]) == 1


def test_a_stage_started_from_the_form_serves_that_item(relay: RelayOnAirflow) -> None:
    key = relay.start("form", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    relay.signal(key, "second")
    run_id = relay.api.trigger_dag(relay.dag("second"), conf={"item_id": key})
    relay.wait_for(key, ItemState.DONE)
    assert relay.run_of(key, "second").run_id == run_id


def test_a_stage_started_for_an_unknown_item_says_so(relay: RelayOnAirflow) -> None:
    run_id = relay.api.trigger_dag(relay.dag("second"), conf={"item_id": "nobody"})
    run = relay.airflow.wait_for_run(relay.dag("second"), run_id)
    assert run["state"] == "failed"
    assert "No item has the key 'nobody'" in relay.api.task_log(relay.dag("second"), run_id, "work")


def test_a_stage_started_without_an_item_does_nothing(relay: RelayOnAirflow) -> None:
    run_id = relay.api.trigger_dag(relay.dag("second"))
    run = relay.airflow.wait_for_run(relay.dag("second"), run_id)
    assert run["state"] == "success"
    assert relay.api.task_states(relay.dag("second"), run_id) == {"work": "skipped", "hand_off": "success"}


def test_a_hand_off_cleared_alone_changes_nothing(relay: RelayOnAirflow) -> None:
    key = relay.start("handoff")
    done = relay.wait_for(key, ItemState.DONE)
    run = relay.run_of(key, "first")
    relay.api.clear(run.dag_id, run.run_id, ["hand_off"])
    relay.airflow.wait_for_task(run.dag_id, run.run_id, "hand_off", states=frozenset({"success"}))
    assert relay.wait_for_run(run, "success")["state"] == "success"
    assert relay.item(key) == done
    assert len(relay.airflow_runs(key, STAGES)["second"]) == 1


def test_only_the_work_cleared_is_handed_off_by_the_tick(relay: RelayOnAirflow) -> None:
    key = relay.start("partial", second="fail")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    run = relay.run_of(key, "second")
    relay.wait_for_run(run, "failed")
    relay.signal(key, "second")
    relay.api.clear(run.dag_id, run.run_id, ["work"], downstream=False)
    relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=frozenset({"success"}))
    relay.tick()
    relay.wait_for(key, ItemState.DONE)


def test_clear_of_a_failed_run_while_a_newer_one_is_at_work_is_refused_and_names_it(
    relay: RelayOnAirflow,
) -> None:
    key = relay.start("newer", second="wait")
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    failed = relay.run_of(key, "second")
    relay.api.set_run_state(failed.dag_id, failed.run_id, "failed")
    relay.wait_for(key, ItemState.FAILED, stage="second")
    newer = relay.api.trigger_dag(relay.dag("second"), conf={"item_id": key})
    relay.wait_for(key, ItemState.RUNNING, stage="second")
    relay.api.clear_run(failed.dag_id, failed.run_id)
    relay.airflow.wait_for_task(failed.dag_id, failed.run_id, "work", states=frozenset({"failed"}))
    log = relay.api.task_log(failed.dag_id, failed.run_id, "work", try_number=2)
    assert f"{newer} is newer and at work" in log
    relay.signal(key, "second")
    relay.wait_for(key, ItemState.DONE)
    assert relay.run_of(key, "second").run_id == newer


@pytest.mark.slow
def test_a_bulk_clear_rewinds_five_items_and_refuses_the_others(relay: RelayOnAirflow) -> None:
    """Last in this file: for ten minutes afterwards a rewind of this pipeline is refused."""
    keys = {relay.start(f"bulk{i}", second="fail") for i in range(REWIND_BURST + 1)}
    before = {key: relay.wait_for(key, ItemState.FAILED, stage="second").epoch for key in keys}
    firsts = {key: relay.run_of(key, "first") for key in keys}
    for run in firsts.values():
        relay.wait_for_run(run)
        relay.api.clear_run(run.dag_id, run.run_id)
    refused = {}
    for key, run in firsts.items():
        ended = frozenset({"success", "failed"})
        task = relay.airflow.wait_for_task(run.dag_id, run.run_id, "work", states=ended)
        if task["state"] == "failed":
            refused[key] = relay.api.task_log(run.dag_id, run.run_id, "work", try_number=2)
    assert refused, "the test before has rewound an item too, so one or two are refused"
    for key, log in refused.items():
        assert "looks like a bulk clear by mistake" in log
        assert f"airflow relay rewind {key} first" in log
        item = relay.item(key)
        assert item is not None
        assert (item.state, item.epoch) == (ItemState.FAILED, before[key]), "untouched"
    for key in keys - refused.keys():
        relay.wait_for(key, ItemState.FAILED, stage="second", more=lambda i, e=before[key]: i.epoch > e + 1)

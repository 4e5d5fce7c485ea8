"""Reports from the field about deferred jobs, as tests; numbered as in ``docs/field-reports.md``."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import httpx
import pytest
from airflow.sdk import BaseHook
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowFailException
from tests.support.agent_server import AgentServerProcess

from airflow_relay.clock import utcnow
from airflow_relay.core.errors import ErrorClass, Verdict
from airflow_relay.crash import CrashPoint
from airflow_relay.hooks.agent import AgentConnectionError, AgentHook
from airflow_relay.ledger import jobs
from airflow_relay.ledger.jobs import JobPhase
from airflow_relay.operators import agent_attempt, agent_job
from airflow_relay.operators import agent_job_errors as errors
from airflow_relay.policies.stage_retry import decide
from airflow_relay.triggers import agent_client
from airflow_relay.triggers.pacing import Pace
from support.agent_tasks import event_of

WORKING = {"fault": "stuck_queued"}


class ProcessDied(BaseException):
    """Stands for SIGKILL: nothing in the product catches it."""


@pytest.fixture
def die_at(monkeypatch):
    """Let the worker die at a named point, once."""

    def arm(point):
        left = [point]

        def crash(reached):
            if reached in left:
                left.remove(reached)
                raise ProcessDied(reached)

        monkeypatch.setattr(agent_attempt, "crash_point", crash)
        monkeypatch.setattr(agent_job, "crash_point", crash)

    return arm


@pytest.fixture
def wire(monkeypatch):
    """Put a function in the place of the network, for submits and polls."""

    def install(handler):
        calls = []

        def answer(request):
            calls.append(request)
            return handler(request)

        original = agent_attempt.AgentClient.__init__

        def with_transport(self, settings):
            original(self, settings)
            self._http = httpx.Client(transport=httpx.MockTransport(answer), headers=settings.headers)

        monkeypatch.setattr(agent_attempt.AgentClient, "__init__", with_transport)
        monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", "http://agents.example")
        return calls

    return install


def posts(server):
    return server.stats()["posts"]


def cancels(server):
    return server.stats()["cancels"]


def status_of(server, ask):
    return next(job["status"] for job in server.jobs() if job["id"] == ask.job().ref["id"])


def deferred(ask):
    ask.execute()
    assert ask.deferred is not None
    return ask


# --- 15 to 18: paying twice ------------------------------------------------------------------------------


def test_report_15_a_restarted_triggerer_polls_and_never_submits(server, task):
    before = posts(server)
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    first, second = ask.trigger(), ask.trigger()

    async def killed_then_restarted():
        running = asyncio.create_task(event_of(first))
        await asyncio.sleep(0)
        running.cancel()
        return await event_of(second)

    assert ask.resume(asyncio.run(killed_then_restarted()))["data"]
    assert posts(server) == before + 1


def test_report_16_a_conflict_that_names_the_job_is_attached_to(task, wire):
    done = {"id": "resp_7", "object": "response", "status": "completed", "output": text_output("done")}

    def handler(request):
        if request.method == "POST":
            return httpx.Response(
                409, json={"error": {"response_id": "resp_7", "message": "already running"}}
            )
        return httpx.Response(200, json=done)

    calls = wire(handler)
    assert task().run()["text"] == "done"
    assert [call.method for call in calls] == ["POST", "GET"]


def test_report_16_a_conflict_without_the_job_is_asked_again_later_under_the_same_key(task, wire):
    done = {"id": "resp_7", "object": "response", "status": "completed", "output": text_output("done")}
    replies = [httpx.Response(409, json={"error": {"message": "in flight"}}), httpx.Response(200, json=done)]
    calls = wire(lambda _: replies.pop(0))
    ask = task()
    with pytest.raises(errors.AgentJobSubmitError) as caught:
        ask.run()
    assert caught.value.verdict.retryable
    assert ask.new_try().run()["text"] == "done"
    assert len({call.headers["Idempotency-Key"] for call in calls}) == 1


@pytest.mark.parametrize(
    "point",
    [point for point in CrashPoint if point.value.startswith("job.")],
)
def test_report_17_a_worker_that_dies_anywhere_has_paid_for_one_job(server, task, die_at, point):
    before = server.stats()["jobs_created"]
    ask = task(metadata={"fault": "slow:seconds=0.5"})
    die_at(point)
    with pytest.raises(ProcessDied):
        ask.run()
    assert ask.new_try().run()["data"]
    assert server.stats()["jobs_created"] == before + 1
    assert [job.phase for job in ask.jobs()] == [JobPhase.SUCCEEDED]


def test_report_17_a_clear_of_finished_work_gets_the_kept_result(server, task):
    ask = task()
    first, before = ask.run(), posts(server)
    for _ in range(10):
        assert ask.new_try().run() == first
    assert posts(server) == before


def test_report_17_a_clear_of_running_work_attaches_to_it(server, task):
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    before = posts(server)
    assert deferred(ask.new_try()).resume(ask.watch())["data"]
    assert posts(server) == before


def test_report_17_changed_input_is_a_new_job_and_the_old_one_is_cancelled(server, task):
    ask = deferred(task(metadata=WORKING))
    ask.new_try(instructions="Be brief.", metadata={}).run()
    first, second = ask.jobs()
    assert first.cancel_requested_at is not None
    assert next(job["status"] for job in server.jobs() if job["id"] == first.ref["id"]) == "cancelled"
    assert second.phase is JobPhase.SUCCEEDED
    assert first.key != second.key


def test_report_17_an_earlier_input_gets_its_own_kept_result_back(server, task):
    ask = task()
    first = ask.run()
    ask.new_try(instructions="Be brief.").run()
    before = posts(server)
    assert ask.new_try(instructions=None).run() == first
    assert posts(server) == before


def test_report_17_a_person_may_ask_for_a_fresh_job(server, task, ledger):
    ask = task()
    ask.run()
    with ledger.write() as tx:
        assert jobs.drop_kept(tx, ask.item_id, now=utcnow()) == 1
    ask.new_try().run()
    assert [job.generation for job in ask.jobs()] == [1, 2]


@pytest.mark.parametrize("polls", [1, 5, 50])
def test_report_18_failing_polls_do_not_start_a_second_job(server, task, polls):
    before = posts(server)
    ask = task(
        metadata={"fault": f"http_status:point=poll,status=503,times={polls}"},
        poll_interval=0.01,
        lost_contact_after=timedelta(hours=1),
    )
    assert ask.run()["data"]
    assert posts(server) == before + 1


def test_report_18_lost_contact_keeps_the_job_and_the_retry_attaches(server, task):
    ask = deferred(task(metadata=WORKING, lost_contact_after=timedelta(seconds=1)))
    server.set_fault("http_status", point="poll", status=503)
    before = posts(server)
    event = ask.watch()
    assert event["why"] == "contact_lost"
    with pytest.raises(errors.AgentJobContactLostError, match="may still run") as caught:
        ask.resume(event)
    assert caught.value.verdict.retryable
    assert ask.job().phase is JobPhase.SUBMITTED
    server.clear_faults()
    deferred(ask.new_try())
    assert posts(server) == before
    assert status_of(server, ask) == "queued"


# --- 21 to 25: cancelling --------------------------------------------------------------------------------


def test_report_21_a_timeout_cancels_and_lost_contact_does_not(server, task):
    late = task(metadata=WORKING, timeout=timedelta(seconds=1))
    with pytest.raises(errors.AgentJobTimeoutError):
        late.run()
    assert status_of(server, late) == "cancelled"
    lost = deferred(task(metadata=WORKING, lost_contact_after=timedelta(seconds=1)))
    server.set_fault("http_status", point="poll", status=500)
    with pytest.raises(errors.AgentJobContactLostError):
        lost.resume(lost.watch())
    assert status_of(server, lost) == "queued"


def test_report_21_a_trigger_that_breaks_leaves_the_job_to_the_next_attempt(server, task):
    ask = deferred(task(metadata=WORKING))
    with pytest.raises(errors.AgentJobContactLostError) as caught:
        ask.fail_deferral(TriggerFailureReason.TRIGGER_FAILURE)
    assert caught.value.verdict.retryable
    assert status_of(server, ask) == "queued"


@pytest.mark.parametrize("state", ["failed", "success"])
def test_report_22_ending_a_deferred_task_by_hand_cancels_its_job_once(server, task, states, state):
    ask = deferred(task(metadata=WORKING))
    states["ask"] = state
    before = cancels(server)
    for _ in range(2):
        asyncio.run(ask.trigger_of_first().on_kill())
    assert cancels(server) == before + 1
    assert ask.job().phase is JobPhase.CANCELLED
    assert ask.job().error_class == ErrorClass.CANCELLED.value


def test_report_22_a_run_that_is_deleted_cancels_its_job(server, task, states):
    ask = deferred(task(metadata=WORKING))
    states.clear()
    asyncio.run(ask.trigger_of_first().on_kill())
    assert status_of(server, ask) == "cancelled"


def test_report_22_the_cancel_can_be_switched_off(server, task, states):
    ask = deferred(task(metadata=WORKING, on_kill_cancel=False))
    states["ask"] = "failed"
    asyncio.run(ask.trigger_of_first().on_kill())
    assert status_of(server, ask) == "queued"


def test_report_22_a_kill_of_a_waiting_worker_cancels_and_a_shutdown_does_not(server, task, states):
    ask = task(metadata=WORKING, deferrable=False)
    for state, expected in (("running", "queued"), ("failed", "cancelled")):
        states["ask"] = state
        with ask.operator._attempt(ask.context) as attempt:
            attempt.start()
            ask.operator.on_kill()
        assert status_of(server, ask) == expected
    assert ask.job().phase is JobPhase.CANCELLED


def test_report_23_a_trigger_that_moves_to_another_triggerer_cancels_nothing(server, task, states):
    ask = deferred(task(metadata=WORKING))
    states["ask"] = "deferred"
    before = cancels(server)
    asyncio.run(ask.trigger_of_first().on_kill())
    assert cancels(server) == before
    assert ask.job().cancel_requested_at is None


@pytest.mark.parametrize("state", [None, "scheduled", "running", "deferred", "up_for_retry"])
def test_report_25_a_clear_does_not_cancel_what_its_next_attempt_needs(server, task, states, state):
    ask = deferred(task(metadata=WORKING))
    states["ask"] = state
    asyncio.run(ask.trigger_of_first().on_kill())
    assert status_of(server, ask) == "queued"


def test_report_25_the_kill_of_an_old_attempt_cannot_reach_the_new_ones_job(server, task, states):
    ask = deferred(task(metadata=WORKING))
    old = ask.trigger_of_first()
    deferred(ask.new_try())
    states["ask"] = "failed"
    asyncio.run(old.on_kill())
    assert status_of(server, ask) == "queued"
    asyncio.run(ask.trigger().on_kill())
    assert status_of(server, ask) == "cancelled"


def test_report_25_an_attempt_that_comes_during_the_cancel_gets_a_job_of_its_own(server, task, ledger):
    ask = deferred(task(metadata=WORKING))
    with ledger.write() as tx:
        claimed = jobs.request_cancel(tx, ask.job().id, attempt=str(ask.ti.id), now=utcnow())
    assert claimed
    assert ask.new_try(metadata={}).run()["data"]
    assert [job.generation for job in ask.jobs()] == [1, 2]


# --- 26 to 30: deferral ----------------------------------------------------------------------------------


def test_report_26_a_job_that_is_done_at_once_is_not_deferred(server, task):
    ask = task(metadata={"fault": "background_ignored"})
    assert ask.execute()["data"]
    assert ask.deferred is None


def test_report_26_the_first_poll_in_the_triggerer_waits_a_full_interval(server, task):
    ask = deferred(task(metadata=WORKING, poll_interval=15))
    trigger = ask.trigger()
    now = utcnow()
    pace = Pace(trigger.interval, now + timedelta(hours=1), timedelta(minutes=1), lambda: 0.0)
    assert pace.first(now) == 15
    assert pace.first(now, hint=40) == 40


def test_report_27_the_deadline_is_absolute_and_a_retry_does_not_move_it(server, task):
    ask = deferred(task(metadata=WORKING, timeout=timedelta(hours=2)))
    first = datetime.fromisoformat(ask.trigger().deadline)
    assert first == ask.job().submitted_at + timedelta(hours=2)
    assert ask.deferred.timeout > timedelta(hours=2)
    deferred(ask.new_try())
    assert datetime.fromisoformat(ask.trigger().deadline) == first


def test_report_27_the_stages_deadline_is_kept_as_well(server, task, ledger):
    from airflow_relay.ledger import runs

    ask = task(metadata=WORKING, timeout=timedelta(hours=2))
    until = utcnow() + timedelta(minutes=5)
    run = ledger.find_run(ask.dag_id, ask.run_id)
    with ledger.write() as tx:
        runs.change(tx, run.id, deadline=until)
    assert datetime.fromisoformat(deferred(ask).trigger().deadline) == until


def test_report_29_an_event_of_another_job_decides_nothing(server, task):
    stranger = {"why": "terminal", "ref": {"protocol": "responses", "id": "resp_stranger"}, "attempt": "x"}
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    own = ask.watch()
    value = ask.resume(stranger)
    assert value["job"]["id"] == own["ref"]["id"]


def test_report_30_only_what_may_help_is_retried_and_through_the_ordinary_path():
    refused = errors.AgentJobRefusedError("no", Verdict(ErrorClass.REFUSAL))
    failed = errors.AgentJobFailedError("no", Verdict(ErrorClass.SERVER_ERROR))
    assert decide(refused.verdict, refused).action is RetryAction.FAIL
    assert decide(failed.verdict, failed).action is not RetryAction.FAIL
    # These would bypass the policy, which records the verdict before Airflow knows the state.
    assert not issubclass(errors.AgentJobError, AirflowFailException)


# --- 31 to 33: the triggerer -----------------------------------------------------------------------------


def test_report_31_the_trigger_looks_nothing_up_in_a_blocking_way(server, task, monkeypatch):
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))

    def refuse(*_args, **_kwargs):
        raise AssertionError("a blocking call in the event loop")

    with monkeypatch.context() as patched:
        patched.setattr(BaseHook, "get_connection", refuse)
        patched.setattr(AgentHook, "_connection", refuse)
        patched.setattr(httpx.Client, "send", refuse)
        event = ask.watch()
    assert event["why"] == "terminal"


def test_report_31_all_triggers_of_a_connection_share_one_client_which_is_closed(server, task, monkeypatch):
    made = []
    make = agent_client._make
    monkeypatch.setattr(agent_client, "_make", lambda settings: made.append(make(settings)) or made[-1])
    asks = [deferred(task(metadata={"fault": "slow:seconds=1"})) for _ in range(5)]

    async def all_of_them():
        return await asyncio.gather(*(event_of(ask.trigger()) for ask in asks))

    assert {event["why"] for event in asyncio.run(all_of_them())} == {"terminal"}
    assert len(made) == 1
    assert made[0].is_closed
    assert not agent_client._shared


def test_report_31_a_poll_that_hangs_holds_up_no_other_job(server, task):
    stuck = deferred(task(metadata={"fault": "slow:seconds=1"}))
    server.set_fault("hang", point="poll", seconds=600, where={"id": stuck.job().ref["id"]})
    others = [deferred(task(metadata={"fault": "slow:seconds=1"})) for _ in range(3)]

    async def watch():
        hanging = asyncio.create_task(event_of(stuck.trigger()))
        events = await asyncio.gather(*(event_of(ask.trigger()) for ask in others))
        still_hanging = not hanging.done()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        return events, still_hanging

    events, still_hanging = asyncio.run(watch())
    assert {event["why"] for event in events} == {"terminal"}
    assert still_hanging


def test_report_32_two_triggerers_watch_one_job_and_change_nothing(server, task):
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    before = ask.job()

    async def twice():
        return await asyncio.gather(event_of(ask.trigger()), event_of(ask.trigger()))

    one, other = asyncio.run(twice())
    assert one == other
    assert ask.job() == before


def test_report_33_without_a_triggerer_the_job_is_submitted_once_and_its_result_is_used(server, task):
    ask = deferred(task(metadata={"fault": "slow:seconds=0.5"}))
    before = posts(server)
    server.wait_for(ask.job().ref["id"])
    assert ask.fail_deferral(TriggerFailureReason.TRIGGER_TIMEOUT)["data"]
    assert posts(server) == before


def test_report_33_not_deferrable_needs_no_triggerer(server, task):
    ask = task(metadata={"fault": "slow:seconds=1"}, deferrable=False)
    assert ask.execute()["data"]
    assert ask.deferred is None


# --- 34 to 37: the connection ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded_server():
    with AgentServerProcess(token="sesame-4711") as running:
        yield running


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "sesame-4711"},
        {"extra": {"token": "sesame-4711"}},
        {"extra": {"headers": {"Authorization": "Bearer sesame-4711"}}},
        {"extra": {"Authorization": "Bearer sesame-4711"}},
    ],
)
def test_report_34_submit_and_poll_carry_the_same_credentials(guarded_server, task, monkeypatch, fields):
    connection = {"conn_type": "http", "host": guarded_server.url, **fields}
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    assert ask.resume(ask.watch())["data"]


def test_report_34_basic_authentication_reaches_submit_and_poll(task, wire, monkeypatch):
    connection = {"conn_type": "http", "host": "http://agents.example", "login": "me", "password": "pw"}
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))
    settings = AgentHook().settings().client_arguments()
    assert settings["auth"]._auth_header == "Basic bWU6cHc="
    assert asyncio.run(AgentHook().asettings()) == AgentHook().settings()


@pytest.mark.parametrize("given", [lambda: 1, object, timedelta(1), {1, 2}, float("nan")])
def test_report_34_an_input_that_is_no_json_is_refused_before_the_submit(server, task, given):
    before = posts(server)
    ask = task(input=given)
    with pytest.raises(ValueError, match="JSON"):
        ask.execute()
    assert posts(server) == before
    assert ask.jobs() == []


def test_report_35_no_secret_leaves_the_connection(guarded_server, task, monkeypatch):
    secret = "sesame-4711"
    connection = {"conn_type": "http", "host": guarded_server.url, "password": secret}
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))
    ask = deferred(task(metadata={"fault": "slow:seconds=1"}))
    assert secret not in repr(ask.trigger())
    assert secret not in json.dumps(ask.trigger().serialize())
    assert secret not in repr(AgentHook().settings())
    value = ask.resume(ask.watch())
    assert secret not in json.dumps(value)
    assert secret not in repr(ask.jobs())


def test_report_35_a_key_in_the_address_is_in_no_error(task, monkeypatch):
    address = "http://127.0.0.1:9/?api_key=verysecret1234567"
    monkeypatch.setenv(
        "AIRFLOW_CONN_RELAY_AGENT",
        json.dumps({"conn_type": "http", "host": address, "extra": {"timeout": 2}}),
    )
    ask = task()
    with pytest.raises(errors.AgentJobSubmitError) as caught:
        ask.execute()
    assert "verysecret" not in str(caught.value)
    assert "verysecret" not in repr(ask.jobs())


@pytest.mark.parametrize("extra", ["srv_lookup", "stream", "max_redirects", "allow_redirects", "verfiy"])
def test_report_37_a_setting_that_polls_could_not_honour_is_refused_before_the_submit(
    server, task, monkeypatch, extra
):
    connection = {"conn_type": "http", "host": server.url, "extra": {extra: True}}
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))
    before = posts(server)
    with pytest.raises(AgentConnectionError, match=extra):
        task().execute()
    assert posts(server) == before


def test_report_37_every_supported_setting_reaches_submits_and_polls_alike(tmp_path, monkeypatch):
    import ssl

    connection = {
        "conn_type": "http",
        "host": "agents.example",
        "schema": "https",
        "extra": {
            "verify": False,
            "timeout": 9,
            "proxies": {"https": "http://proxy:1"},
            "trust_env": "false",
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_RELAY_AGENT", json.dumps(connection))
    settings = AgentHook().settings()
    arguments = settings.client_arguments()
    assert arguments["verify"].verify_mode is ssl.CERT_NONE
    assert arguments["timeout"].read == 9
    assert arguments["proxy"] == "http://proxy:1"
    assert arguments["trust_env"] is False
    assert asyncio.run(AgentHook().asettings()) == settings


# --- 44: capacity ----------------------------------------------------------------------------------------


def test_report_44_a_job_that_was_done_in_time_is_not_failed_because_resuming_had_to_wait(server, task):
    ask = deferred(
        task(metadata={"fault": "slow:seconds=0.2"}, timeout=timedelta(seconds=1), poll_interval=5)
    )
    server.wait_for(ask.job().ref["id"])
    event = ask.watch()
    assert event["why"] == "deadline"
    assert ask.resume(event)["data"]


def text_output(text):
    return [{"type": "message", "content": [{"type": "output_text", "text": text}]}]

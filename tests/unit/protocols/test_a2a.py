"""A2A on the wire: each operation, state, error and deviation as one test."""

from __future__ import annotations

import json

import pytest

from airflow_relay.protocols.a2a import A2AProtocol
from airflow_relay.protocols.base import (
    HttpReply,
    InvalidRequest,
    JobRef,
    JobRejected,
    JobRequest,
    Phase,
    TransientReply,
    Usage,
)
from airflow_relay.protocols.urls import join

RPC = A2AProtocol(endpoint="/a2a/v1")
REST = A2AProtocol(endpoint="/rest", binding="HTTP+JSON")
OLD = A2AProtocol(endpoint="/", version="0.3")
REF = JobRef("a2a", "t/1")
REQUEST = JobRequest(input="hi", key="key-1")


def reply(body, status: int = 200, url: str = "", **headers) -> HttpReply:
    text = body if isinstance(body, str) else json.dumps(body)
    return HttpReply(status, {k.replace("_", "-"): v for k, v in headers.items()}, text, url)


def rpc(result) -> HttpReply:
    return reply({"jsonrpc": "2.0", "id": "relay", "result": result})


def rpc_error(code: int, message: str = "m", status: int = 200) -> HttpReply:
    return reply({"jsonrpc": "2.0", "id": "relay", "error": {"code": code, "message": message}}, status)


def rest_error(status: int, reason: str) -> HttpReply:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
    return reply({"error": {"code": status, "status": "X", "message": "m", "details": details}}, status)


def task(state="TASK_STATE_WORKING", text=None, artifacts=(), **fields) -> dict:
    status = {"state": state}
    if text is not None:
        status["message"] = {"role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"id": "t/1", "contextId": "key-1", "status": status, "artifacts": list(artifacts), **fields}


def artifact(*parts) -> dict:
    return {"artifactId": "a1", "name": "answer", "parts": list(parts)}


# -- what is sent


def test_submit_over_json_rpc():
    call = RPC.submit(
        JobRequest(input="hi", key="key-1", model="m", instructions="be brief", metadata={"a": "b"})
    )
    assert (call.method, call.path, call.headers["A2A-Version"]) == ("POST", "/a2a/v1", "1.0")
    assert (call.json["jsonrpc"], call.json["method"]) == ("2.0", "SendMessage")
    assert call.json["params"] == {
        "message": {
            "messageId": "key-1",
            "contextId": "key-1",
            "role": "ROLE_USER",
            "parts": [{"text": "be brief"}, {"text": "hi"}],
            "metadata": {"a": "b", "model": "m"},
        },
        "configuration": {"returnImmediately": True},
    }


def test_submit_over_http_json():
    call = REST.submit(JobRequest(input="hi", key="k", options={"configuration": {"historyLength": 0}}))
    assert (call.method, call.path) == ("POST", "/rest/message:send")
    assert call.headers["Content-Type"] == "application/a2a+json"
    assert call.json["configuration"] == {"historyLength": 0, "returnImmediately": True}


def test_submit_in_the_old_version():
    call = OLD.submit(REQUEST)
    assert "A2A-Version" not in call.headers
    assert call.json["method"] == "message/send"
    assert call.json["params"]["configuration"] == {"blocking": False}
    message = call.json["params"]["message"]
    assert (message["kind"], message["role"]) == ("message", "user")
    assert message["parts"] == [{"kind": "text", "text": "hi"}]


def test_input_items_become_parts():
    items = [
        "a",
        {"text": "b"},
        {"data": {"c": 1}},
        {"url": "https://h/x", "mediaType": "image/png"},
        {"role": "user", "content": "d"},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "e"}, {"type": "input_text", "text": "f"}],
        },
        {"g": 1},
    ]
    parts = RPC.submit(JobRequest(input=items, key="k")).json["params"]["message"]["parts"]
    assert parts == [
        {"text": "a"},
        {"text": "b"},
        {"data": {"c": 1}},
        {"url": "https://h/x", "mediaType": "image/png"},
        {"text": "d"},
        {"text": "e\nf"},
        {"data": {"g": 1}},
    ]
    old = OLD.submit(JobRequest(input=items[:4], key="k")).json["params"]["message"]["parts"]
    assert [part["kind"] for part in old] == ["text", "text", "data", "file"]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1},
        {"configuration": {"returnImmediately": False}},
        {"configuration": {"blocking": True}},
    ],
)
def test_options_that_cannot_be_carried_or_would_block_are_refused(options):
    with pytest.raises(InvalidRequest, match="configuration"):
        RPC.submit(JobRequest(input="x", key="k", options=options))


def test_poll_cancel_and_find_in_each_binding():
    assert RPC.poll(REF).json["params"] == {"id": "t/1", "historyLength": 0}
    assert [
        RPC.poll(REF).json["method"],
        RPC.cancel(REF).json["method"],
        RPC.find(REQUEST).json["method"],
    ] == [
        "GetTask",
        "CancelTask",
        "ListTasks",
    ]
    assert [OLD.poll(REF).json["method"], OLD.cancel(REF).json["method"]] == ["tasks/get", "tasks/cancel"]
    poll, cancel, find = REST.poll(REF), REST.cancel(REF), REST.find(REQUEST)
    assert (poll.method, poll.path, poll.json) == ("GET", "/rest/tasks/t%2F1?historyLength=0", None)
    assert (cancel.method, cancel.path) == ("POST", "/rest/tasks/t%2F1:cancel")
    query = "contextId=key-1&pageSize=50&historyLength=0&includeArtifacts=true"
    assert (find.method, find.path) == ("GET", f"/rest/tasks?{query}")


def test_a_tenant_goes_along():
    assert A2AProtocol(tenant="acme").poll(REF).json["params"]["tenant"] == "acme"
    assert A2AProtocol(tenant="a/b", binding="HTTP+JSON").poll(REF).path.startswith("/a%2Fb/tasks/")


def test_a_job_is_polled_the_way_it_was_submitted():
    submitted = REST.parse_submit(reply({"task": task()}))
    assert A2AProtocol().poll(submitted.ref) == REST.poll(submitted.ref)
    assert A2AProtocol().cancel(submitted.ref).path == "/rest/tasks/t%2F1:cancel"


@pytest.mark.parametrize(
    "settings",
    [
        {"version": "2.0"},
        {"binding": "GRPC"},
        {"version": "0.3", "binding": "HTTP+JSON"},
        {"fail_on_output": "("},
    ],
)
def test_contradictory_settings_are_refused(settings):
    with pytest.raises(InvalidRequest):
        A2AProtocol(**settings)


# -- the card


def card(*interfaces, **fields) -> dict:
    entries = [{"url": u, "protocolBinding": b, "protocolVersion": v} for u, b, v in interfaces]
    return {"name": "x", "supportedInterfaces": entries, **fields}


@pytest.mark.parametrize(
    ("body", "endpoint", "version", "binding"),
    [
        (card(("https://h/a", "JSONRPC", "1.0")), "https://h/a", "1.0", "JSONRPC"),
        (card(("https://h/b", "HTTP+JSON", "1.0.1")), "https://h/b", "1.0", "HTTP+JSON"),
        (
            card(
                ("https://h/g", "GRPC", "1.0"),
                ("https://h/o", "JSONRPC", "0.3"),
                ("https://h/a", "JSONRPC", "1.0"),
            ),
            "https://h/a",
            "1.0",
            "JSONRPC",
        ),
        (card(("https://h/o", "JSONRPC", "0.3")), "https://h/o", "0.3", "JSONRPC"),
        ({"url": "https://h/old", "protocolVersion": "0.3.0"}, "https://h/old", "0.3", "JSONRPC"),
        (
            {
                "url": "https://h/grpc",
                "preferredTransport": "GRPC",
                "protocolVersion": "0.3.0",
                "additionalInterfaces": [{"url": "https://h/old", "transport": "JSONRPC"}],
            },
            "https://h/old",
            "0.3",
            "JSONRPC",
        ),
        (card(("/relative", "JSONRPC", "1.0")), "https://h/relative", "1.0", "JSONRPC"),
    ],
)
def test_the_card_chooses_the_way(body, endpoint, version, binding):
    chosen = A2AProtocol().parse_card(reply(body, url="https://h/.well-known/agent-card.json"))
    assert (chosen.endpoint, chosen.version, chosen.binding) == (endpoint, version, binding)
    assert join("https://h/prefix", chosen.poll(REF).path).startswith(endpoint)
    assert A2AProtocol().parse_card(reply(body), base="https://h") == chosen


def test_the_card_is_asked_below_the_base():
    call = A2AProtocol().discover()
    assert (call.method, join("https://h/agents/x/", call.path)) == (
        "GET",
        "https://h/agents/x/.well-known/agent-card.json",
    )


def test_a_card_that_leads_to_another_host_is_refused():
    body = card(("https://evil.example/a", "JSONRPC", "1.0"))
    with pytest.raises(JobRejected, match="leads elsewhere"):
        A2AProtocol().parse_card(reply(body, url="https://h/.well-known/agent-card.json"))


@pytest.mark.parametrize(
    "body", [{}, card(("https://h/g", "GRPC", "1.0")), card(("https://h/r", "HTTP+JSON", "0.3"))]
)
def test_a_card_without_a_way_that_relay_speaks_is_refused(body):
    with pytest.raises(JobRejected, match="no interface"):
        A2AProtocol().parse_card(reply(body, url="https://h/"))


# -- the reply to a submit


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        (RPC, rpc({"task": task("TASK_STATE_SUBMITTED")})),
        (REST, reply({"task": task("TASK_STATE_SUBMITTED")})),
        (OLD, rpc(task("submitted", kind="task"))),
    ],
)
def test_an_accepted_task_in_each_dialect(protocol, answer):
    snapshot = protocol.parse_submit(answer)
    assert (snapshot.ref.id, snapshot.phase) == ("t/1", Phase.QUEUED)


def test_a_direct_message_is_terminal_at_submit():
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": '{"a": 1}'}]}
    for answer in (rpc({"message": message}), rpc({"kind": "message", **message})):
        snapshot = RPC.parse_submit(answer)
        assert (snapshot.ref, snapshot.phase, snapshot.data) == (None, Phase.SUCCEEDED, {"a": 1})


def test_a_blocking_server_may_answer_with_the_finished_task():
    snapshot = RPC.parse_submit(
        rpc({"task": task("TASK_STATE_COMPLETED", artifacts=[artifact({"text": "x"})])})
    )
    assert (snapshot.phase, snapshot.text, snapshot.ref.id) == (Phase.SUCCEEDED, "x", "t/1")


@pytest.mark.parametrize("result", [{}, {"task": {"status": {"state": "TASK_STATE_WORKING"}}}, None, "x"])
def test_a_success_that_names_no_task_is_ambiguous(result):
    with pytest.raises(TransientReply) as error:
        RPC.parse_submit(rpc(result))
    assert error.value.ambiguous


@pytest.mark.parametrize("code", [-32602, -32600, -32601, -32004, -32005, -32001])
def test_an_error_that_comes_with_200_is_a_refusal(code):
    with pytest.raises(JobRejected) as error:
        RPC.parse_submit(rpc_error(code))
    assert (error.value.code, error.value.status) == (str(code), 200)


def test_a_wrong_version_is_a_refusal_in_each_binding():
    for protocol, answer in ((RPC, rpc_error(-32009)), (REST, rest_error(400, "VERSION_NOT_SUPPORTED"))):
        with pytest.raises(JobRejected) as error:
            protocol.parse_submit(answer)
        assert error.value.code == "-32009"


def test_a_server_error_may_have_started_the_task_and_a_rate_limit_has_not():
    with pytest.raises(TransientReply) as internal:
        RPC.parse_submit(rpc_error(-32603))
    with pytest.raises(TransientReply) as limited:
        RPC.parse_submit(rpc_error(-32000, "Peer is rate limited"))
    assert (internal.value.ambiguous, limited.value.ambiguous) == (True, False)


# -- polling


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("SUBMITTED", Phase.QUEUED),
        ("WORKING", Phase.RUNNING),
        ("FAILED", Phase.FAILED),
        ("CANCELED", Phase.CANCELLED),
        ("REJECTED", Phase.REFUSED),
        ("INPUT_REQUIRED", Phase.BLOCKED),
        ("AUTH_REQUIRED", Phase.BLOCKED),
        ("UNSPECIFIED", Phase.RUNNING),
        ("NEWLY_INVENTED", Phase.RUNNING),
    ],
)
def test_each_state_in_both_versions(state, phase):
    new, old = f"TASK_STATE_{state}", state.lower().replace("_", "-")
    assert RPC.parse_poll(REF, rpc(task(new))).phase is phase
    snapshot = OLD.parse_poll(REF, rpc(task(old)))
    assert (snapshot.phase, snapshot.raw_status, snapshot.ref) == (phase, old, REF)


def test_progress_and_poll_hint_of_a_task_at_work():
    answer = HttpReply(200, {"Retry-After": "4"}, rpc(task(text="reading page 3")).body)
    snapshot = RPC.parse_poll(REF, answer)
    assert (snapshot.progress, snapshot.poll_after) == ("reading page 3", 4.0)


def test_output_of_several_artifacts():
    artifacts = [
        artifact({"text": "one"}, {"text": "two"}),
        artifact({"data": {"score": 3.0}}),
        artifact({"url": "u"}),
    ]
    usage = {"usage": {"input_tokens": 1, "output_tokens": 2}}
    snapshot = RPC.parse_poll(REF, rpc(task("TASK_STATE_COMPLETED", artifacts=artifacts, metadata=usage)))
    assert (snapshot.text, snapshot.data) == ("one\ntwo", {"score": 3.0})
    assert snapshot.artifacts[2]["files"] == [{"url": "u"}]
    assert snapshot.usage == Usage(1, 2, 3)


def test_several_data_parts_are_a_list():
    artifacts = [artifact({"data": {"a": 1}}), artifact({"data": {"a": 2}})]
    assert RPC.parse_poll(REF, rpc(task("TASK_STATE_COMPLETED", artifacts=artifacts))).data == [
        {"a": 1},
        {"a": 2},
    ]


def test_without_artifacts_the_closing_message_is_the_output():
    assert RPC.parse_poll(REF, rpc(task("TASK_STATE_COMPLETED", text="done"))).text == "done"


@pytest.mark.parametrize("artifacts", [[], [artifact()], [artifact({"text": " "})], ["x"]])
def test_completed_without_output_is_a_failure_unless_allowed(artifacts):
    answer = rpc(task("TASK_STATE_COMPLETED", artifacts=artifacts))
    snapshot = RPC.parse_poll(REF, answer)
    assert (snapshot.phase, snapshot.error.code) == (Phase.FAILED, "empty_output")
    assert A2AProtocol(allow_empty=True).parse_poll(REF, answer).phase is Phase.SUCCEEDED


def test_a_file_is_output():
    answer = rpc(
        task("TASK_STATE_COMPLETED", artifacts=[artifact({"raw": "aGk=", "mediaType": "image/png"})])
    )
    assert RPC.parse_poll(REF, answer).phase is Phase.SUCCEEDED


def test_the_reason_of_a_failure_is_in_the_status_message_or_nowhere():
    assert RPC.parse_poll(REF, rpc(task("TASK_STATE_FAILED", text="no disk"))).error.message == "no disk"
    assert "gives no reason" in RPC.parse_poll(REF, rpc(task("TASK_STATE_FAILED"))).error.message


def test_an_output_guard_turns_success_into_failure():
    guarded = A2AProtocol(fail_on_output="(?i)^error:")
    snapshot = guarded.parse_poll(REF, rpc(task("TASK_STATE_COMPLETED", text="Error: no model")))
    assert (snapshot.phase, snapshot.error.code) == (Phase.FAILED, "output_guard")


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        (RPC, rpc_error(-32001)),
        (OLD, rpc_error(-32001)),
        (RPC, rpc_error(-32001, status=404)),
        (REST, rest_error(404, "TASK_NOT_FOUND")),
        (REST, reply("", 410)),
        (RPC, reply("Not Found", 404)),
    ],
)
def test_a_task_that_the_agent_no_longer_knows_is_lost(protocol, answer):
    assert protocol.parse_poll(REF, answer).phase is Phase.LOST


@pytest.mark.parametrize(
    "answer",
    [
        rpc_error(-32000, "Peer is rate limited"),
        rpc_error(-32603),
        rpc_error(-32006),
        rpc_error(-32602, status=503),
        rest_error(500, "INTERNAL_ERROR"),
        reply("", 502),
        reply("slow", 429),
        reply("<html>", 200),
        reply("<html>default backend", 404),
        reply("", 200),
        reply('{"jsonrpc": "2.0", "resu', 200),
        rpc(None),
        rpc({}),
        reply({"ok": True}),
    ],
)
def test_a_poll_that_meets_trouble_is_no_news(answer):
    with pytest.raises(TransientReply):
        RPC.parse_poll(REF, answer)


@pytest.mark.parametrize(
    "answer", [rpc_error(-32004), reply("no", 401), rest_error(400, "VERSION_NOT_SUPPORTED")]
)
def test_a_poll_that_is_refused_is_a_refusal(answer):
    with pytest.raises(JobRejected):
        RPC.parse_poll(REF, answer)


# -- cancelling


def test_a_cancelled_task():
    assert RPC.parse_cancel(REF, rpc(task("TASK_STATE_CANCELED"))).phase is Phase.CANCELLED
    assert RPC.parse_cancel(REF, rpc({"task": task("TASK_STATE_CANCELED")})).phase is Phase.CANCELLED


@pytest.mark.parametrize("answer", [rpc_error(-32002), rest_error(400, "TASK_NOT_CANCELABLE"), rpc({})])
def test_a_cancel_that_tells_no_outcome_asks_for_a_poll_at_once(answer):
    snapshot = RPC.parse_cancel(REF, answer)
    assert (snapshot.phase, snapshot.poll_after) == (Phase.RUNNING, 0.0)


def test_a_cancel_of_a_lost_task_and_of_an_agent_without_cancel():
    assert RPC.parse_cancel(REF, rpc_error(-32001)).phase is Phase.LOST
    with pytest.raises(JobRejected):
        RPC.parse_cancel(REF, rpc_error(-32004))
    assert A2AProtocol(cancellable=False).cancel(REF) is None


# -- looking up


def test_a_found_task_is_to_be_polled_whatever_the_list_says():
    listed = rpc({"tasks": [task("TASK_STATE_COMPLETED")], "nextPageToken": ""})
    found = RPC.parse_find(REQUEST, listed)
    assert (found.ref.id, found.phase, found.poll_after) == ("t/1", Phase.RUNNING, 0.0)


def test_of_several_tasks_a_finished_one_is_taken_then_a_live_one_then_the_newest():
    def dated(id_, state, timestamp):
        return {**task(), "id": id_, "status": {"state": f"TASK_STATE_{state}", "timestamp": timestamp}}

    failed, old, new = dated("f", "FAILED", "9"), dated("o", "WORKING", "1"), dated("n", "WORKING", "2")
    done = dated("d", "COMPLETED", "0")
    for tasks, best in (([failed, old, new, done], "d"), ([failed, old, new], "n"), ([failed], "f")):
        assert RPC.parse_find(REQUEST, rpc({"tasks": tasks})).ref.id == best


def test_no_task_of_this_key_is_a_promise_that_there_is_none():
    assert RPC.parse_find(REQUEST, rpc({"tasks": []})) is None
    assert RPC.parse_find(REQUEST, rpc({})) is None
    assert RPC.parse_find(REQUEST, rpc({"tasks": [{**task(), "contextId": "other"}]})) is None


@pytest.mark.parametrize(
    "answer", [rpc(None), rpc({"ok": True}), rpc({"tasks": {}}), reply({"status": "up"})]
)
def test_an_answer_that_is_no_list_promises_nothing(answer):
    with pytest.raises(TransientReply):
        RPC.parse_find(REQUEST, answer)


def test_a_server_that_ignores_the_filter_and_has_more_cannot_tell():
    others = rpc({"tasks": [{**task(), "contextId": "other"}], "nextPageToken": "2"})
    with pytest.raises(JobRejected, match="other contexts"):
        RPC.parse_find(REQUEST, others)


@pytest.mark.parametrize("code", [-32004, -32601])
def test_a_server_without_a_list_cannot_tell(code):
    with pytest.raises(JobRejected):
        RPC.parse_find(REQUEST, rpc_error(code))


def test_the_old_version_has_no_look_up():
    assert OLD.find(REQUEST) is None
    assert not OLD.capabilities.find
    assert RPC.capabilities.find
